"""Memory of ONNX Runtime's kernels: measured in a child, kept, and enough to say what a run allocates."""

import subprocess
import sys

import pytest

from neaptide.cost.cache import OpCostCache
from neaptide.cost.onnxruntime import allocator, scratch
from neaptide.cost.onnxruntime.allocator import CannotMeasure, counting_library
from neaptide.cost.onnxruntime.calls import MOST_NUMBERS, KernelCall, Tensor, calls_of
from neaptide.cost.onnxruntime.model_files import RuntimeOptions, fused_model, measured_peak
from neaptide.cost.onnxruntime.process import RuntimeProcess
from neaptide.cost.onnxruntime.scratch import KernelMeter
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.of_runtime import runtime_problem
from support.together import together

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
if sys.platform != "linux":
    pytest.skip("allocations are counted on Linux", allow_module_level=True)

from frontends.onnx.onnx_files import model, node, numbers, tensor, two_branches, weight  # noqa: E402
from neaptide.frontends.onnx.reader import read_model  # noqa: E402
from neaptide_corpus.onnx_models.feeds import random_feeds  # noqa: E402

FLOATS = Tensor("float32", (1, 16, 32, 32))
NBYTES = FLOATS.nbytes


def call(kind, version, *operands, results=(FLOATS,), domain="", **attributes):
    return KernelCall(kind, version, domain, tuple(attributes.items()), operands, results)


def of_weights(*shape):
    return Tensor("float32", shape, weight=True)


CALLS = {
    "relu": call("Relu", 14, FLOATS),
    "add": call("Add", 14, FLOATS, FLOATS),
    "conv": call("Conv", 11, FLOATS, of_weights(16, 16, 3, 3), pads=(1, 1, 1, 1)),
    "concat": call("Concat", 13, FLOATS, axis=0),
    "old": call("Softmax", 1, FLOATS, axis=1),
    "clip": call("Clip", 13, FLOATS, None, Tensor("float32", (), weight=True, numbers=(6.0,))),
    "fused": call(
        "FusedConv",
        1,
        FLOATS,
        of_weights(16, 16, 1, 1),
        domain="com.microsoft",
        activation="Relu",
        kernel_shape=(1, 1),
    ),
    "wrong": call("Reshape", 14, FLOATS, Tensor("int64", (1,), weight=True, numbers=(7,))),
    "unknown": call("Nothing", 1, FLOATS, domain="nowhere"),
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return OpCostCache(tmp_path_factory.mktemp("costs") / "costs.jsonl")


@pytest.fixture(scope="module")
def measured(cache):
    with KernelMeter(cache) as meter:
        found = meter.measure(CALLS.values())
    return {name: found[made] for name, made in CALLS.items()}


def test_kernels_have_scratch_and_overwrite_what_the_runtime_lets_them(measured):
    assert measured["relu"].in_place == (0,)
    assert measured["clip"].in_place == (0,)
    assert measured["concat"].in_place == ()
    assert max(measured[name].workspace_bytes for name in ("relu", "clip", "concat", "add")) < 4096
    # Columns of the image, in pieces: at least a window of each channel for a row of the result.
    assert 9 * 16 * 4 < measured["conv"].workspace_bytes < 9 * NBYTES
    assert not any(measured[name].failure for name in CALLS if name not in {"wrong", "unknown"})


def test_a_call_that_does_not_run_says_why_and_the_next_one_runs(measured):
    assert "Reshape" in measured["wrong"].failure or "reshape" in measured["wrong"].failure
    assert "Nothing" in measured["unknown"].failure
    assert measured["wrong"].workspace_bytes == 0


def test_what_was_measured_is_not_measured_again(cache, measured, monkeypatch):
    monkeypatch.setattr(scratch, "RuntimeProcess", None)
    again = KernelMeter(OpCostCache(cache.path)).measure(CALLS.values())
    assert {name: again[made] for name, made in CALLS.items()} == measured


def test_values_that_are_computed_before_a_run_are_not_in_its_frame(cache, measured):
    def frame(lines):
        made = model(lines, [tensor("x", 2)], [tensor("y", 2)], [weight("v", 2), weight("w", 2)])
        return KernelMeter(cache).scratch(read_model(made).graph, {}).frame_bytes

    plain = frame(["a = Add(x, v)", "y = Mul(a, w)"])
    assert plain == frame(["s = Exp(v)", "t = Neg(s)", "a = Add(x, t)", "y = Mul(a, w)"]) > 0
    assert plain < frame(["b = Exp(x)", "a = Add(b, v)", "y = Mul(a, w)"])


def test_a_process_that_dies_is_started_again():
    with RuntimeProcess() as process:
        assert "value_bytes" in process.ask({"ask": "frame"})
        process._process.kill()
        assert "ended" in process.ask({"ask": "frame"})["failure"]
        assert process.ask({"ask": "frame"})["value_bytes"] > 0


def test_without_a_compiler_planning_goes_on_and_one_sentence_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("NEAPTIDE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(CannotMeasure, match="no C compiler"):
        counting_library()
    found = KernelMeter().scratch(read_model(two_branches()).graph, {})
    assert found.note.startswith("scratch of ONNX Runtime's kernels is not counted: no C compiler")
    assert found.workspace == {}


def test_a_compiler_that_fails_is_quoted(tmp_path, monkeypatch):
    monkeypatch.setenv("NEAPTIDE_CACHE_DIR", str(tmp_path))
    wrong = tmp_path / "source.c"
    wrong.write_text("int main(void) { return nothing; }")
    monkeypatch.setattr(allocator, "_SOURCE", wrong)
    with pytest.raises(CannotMeasure, match="nothing"):
        counting_library()
    assert [path.name for path in tmp_path.iterdir()] == ["source.c"]


def test_calls_hold_what_memory_depends_on():
    made = model(
        [
            node("w = Mul(a, a)"),
            node("r = Clip(x, , most)"),
            node("p = Split(r)", axis=1, num_outputs=1),
            node("y = Add(p, w)"),
        ],
        [tensor("x", 2, 3)],
        [tensor("y", 2, 3)],
        [weight("a", 2, 3), numbers("most", 6.0, dtype="float32")],
    )
    made.graph.initializer[1].dims[:] = []
    read = read_model(made)
    calls = calls_of(read.graph, read.small_numbers(MOST_NUMBERS))
    kinds = {call.kind: call for call in calls.values()}
    assert set(kinds) == {"Clip", "Split", "Add"}  # the product makes a weight
    assert kinds["Clip"].operands[1:] == (None, Tensor("float32", (), weight=True, numbers=(6.0,)))
    assert kinds["Add"].operands[1].weight
    assert kinds["Add"].overwritable() == (0,)
    assert ("axis", 1) in kinds["Split"].attributes


SMALL = {
    "branches": two_branches(16, 32),
    "reused": model(
        [
            node("a = Conv(x, w)", pads=[1, 1, 1, 1]),
            "b = Relu(a)",
            "c = Add(a, b)",
            "d = Sigmoid(c)",
            node("e = Concat(c, d)", axis=1),
            node("p = MaxPool(e)", kernel_shape=[2, 2], strides=[2, 2]),
            "y = Flatten(p)",
        ],
        [tensor("x", 1, 8, 24, 24)],
        [tensor("y", 1, 2304)],
        [weight("w", 8, 8, 3, 3)],
    ),
    "attention": model(
        [
            node("t = Transpose(x)", perm=[0, 2, 1]),
            "s = MatMul(x, t)",
            "h = Mul(s, scale)",
            "p = Softmax(h)",
            "m = MatMul(p, x)",
            "y = Add(m, x)",
        ],
        [tensor("x", 4, 64, 32)],
        [tensor("y", 4, 64, 32)],
        [numbers("scale", 0.5, dtype="float32")],
    ),
    "in place": model(
        [
            "s0 = Exp(x)",
            *(line for i in range(40) for line in (f"v{i} = Flatten(s{i})", f"s{i + 1} = Tanh(v{i})")),
            node("y = Concat(s40, s40)", axis=0),
        ],
        [tensor("x", 4, 256)],
        [tensor("y", 8, 256)],
        [],
    ),
    "quantised": model(
        [
            "q = QuantizeLinear(z, scale, zero)",
            "d = DequantizeLinear(q, scale, zero)",
            "r = Neg(d)",
            "i = Exp(x)",
            "b = MatMul(d, i)",
            "j = Sin(x)",
            "k = MatMul(r, j)",
            "y = Add(b, k)",
        ],
        [tensor("x", 256, 256), tensor("z", 1, 256)],
        [tensor("y", 1, 256)],
        [numbers("scale", 0.1, dtype="float32"), numbers("zero", 3, dtype="uint8")],
    ),
}
"""`in place`: what a run keeps of each result on the bytes of an operand. `quantised`: a dequantisation with two readers, where a
copy for the second would run last, with both exponentials there."""


@together("name", SMALL)
def test_the_predicted_peak_is_the_measured_one(name, cache, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(SMALL[name], path)
    read = read_model(SMALL[name])
    with KernelMeter(cache) as meter:
        found = meter.scratch(read.graph, read.small_numbers(MOST_NUMBERS))
    assert not found.failures
    assert not found.note
    problem = runtime_problem(read.graph, found)
    predicted = evaluate_order(problem, range(problem.op_count)).peak_bytes
    measured = measured_peak(path, random_feeds(SMALL[name]))
    assert predicted == pytest.approx(measured.peak_bytes, rel=0.02)
    assert measured.resident_bytes > measured.peak_bytes


def test_the_fused_model_is_what_the_runtime_runs(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(SMALL["branches"], path)
    fused = onnx.load_from_string(fused_model(path))
    assert "FusedConv" in {node.op_type for node in fused.graph.node}
    made = {name for node in fused.graph.node for name in node.output}
    assert made == {value.name for value in (*fused.graph.value_info, *fused.graph.output)}
    assert len(read_model(fused).graph.nodes) == len(fused.graph.node)
    target = tmp_path / "fused.onnx"
    onnx.save(fused, target)
    feeds = random_feeds(fused)
    whole = measured_peak(path, feeds, RuntimeOptions(optimize="extended"))
    assert measured_peak(target, feeds).peak_bytes == pytest.approx(whole.peak_bytes, rel=0.02)


def test_a_model_that_does_not_run_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"nothing")
    with pytest.raises(CannotMeasure, match="does not run the model"):
        fused_model(path)


def test_measuring_imports_neither_runtime_nor_onnx_here():
    code = (
        "import sys; import neaptide.cost.onnxruntime.scratch, neaptide.cost.onnxruntime.model_files;"
        "assert not {'onnx', 'onnxruntime', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
