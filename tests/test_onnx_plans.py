"""Plans of ONNX models, in Python and on the command line."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import neaptide
from frontends.onnx.onnx_files import model, node, tensor, weight
from neaptide.cli.main import main
from neaptide.cli.process import exit_codes
from neaptide.errors import InfeasibleBudget, InvalidBudget, TargetError, UsageError
from neaptide.transform.passes import BY_NAME_ONLY
from support.together import together


def wide():
    """Two convolutions with much between them, which run in parts of their channels."""
    return model(
        [
            node("a = Conv(x, w0)", pads=[1, 1, 1, 1]),
            "r = Relu(a)",
            node("p = MaxPool(r)", kernel_shape=[4, 4], strides=[4, 4]),
            node("b = Conv(p, w1)", pads=[1, 1, 1, 1]),
            "y = GlobalAveragePool(b)",
        ],
        [tensor("x", 1, 1, 32, 32)],
        [tensor("y", 1, 8, 1, 1)],
        [weight("w0", 16, 1, 3, 3), weight("w1", 8, 16, 3, 3, seed=1)],
        opset=18,
    )


def run(made, x, options=None):
    return onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, {"x": x})[0]


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "wide.onnx"
    onnx.save(wide(), target)
    return target


# x has 1*32*32 floats, `a` has 16 of such channels.
FILE_PEAK = (1 + 16) * 32 * 32 * 4
LEAST = ("channel_fission_8",)


def test_passes_lower_the_footprint_and_the_numbers_stay():
    made = wide()
    plan = neaptide.onnx.plan(made, passes=LEAST)
    x = np.random.default_rng(0).standard_normal((1, 1, 32, 32)).astype(np.float32)
    written = plan.to_model()
    onnx.checker.check_model(written, full_check=True)
    assert np.allclose(run(written, x, plan.session_options()), run(made, x), rtol=1e-5, atol=1e-5)
    told = plan.to_json()
    assert told["baseline_peak_bytes"] == told["order_peak_bytes"] == FILE_PEAK
    assert told["lower_bound_bytes"] <= told["peak_bytes"] < 0.4 * FILE_PEAK
    assert told["arena_bytes"] >= told["peak_bytes"]
    (step,) = told["passes"]
    assert step["name"] == "channel_fission_8"
    assert step["change_bytes"] == step["after_bytes"] - step["before_bytes"] < 0
    assert neaptide.onnx.plan(written, passes="none").found.baseline_peak_bytes == plan.peak_bytes
    assert len(made.graph.node) == 5, "the model that was given stays as it is"


def test_a_peak_that_is_not_reached_raises_with_the_best_plan():
    with pytest.raises(InfeasibleBudget, match=r"bytes above 1\.0 KiB") as caught:
        neaptide.onnx.plan(wide(), peak="1KiB", passes=LEAST)
    assert caught.value.plan.peak_bytes == caught.value.smallest_peak_bytes < FILE_PEAK
    assert neaptide.onnx.plan(wide(), peak="100%", passes="none").peak_bytes == FILE_PEAK
    with pytest.raises(InvalidBudget):
        neaptide.onnx.plan(wide(), peak="a lot")


@together(
    ("arguments", "error", "words"),
    [
        ({"passes": "no_such_pass"}, UsageError, "no pass is called 'no_such_pass'"),
        ({"passes": "none", "target": "toaster"}, UsageError, "there is no target 'toaster'"),
        ({"passes": "none", "dims": {"N": 1}}, UsageError, "no input of the model has a dim 'N'"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        neaptide.onnx.plan(wide(), **arguments)


def test_dims_without_a_size_are_asked_for():
    free = model(["y = Relu(x)"], [tensor("x", "batch", 4)], [tensor("y", "batch", 4)])
    with pytest.raises(TargetError, match="dims without a size"):
        neaptide.onnx.plan(free, passes="none")
    assert neaptide.onnx.plan(free, passes="none", dims={"batch": 3}).peak_bytes == 3 * 4 * 4


def told(capsys, *arguments):
    code = main([*map(str, arguments)])
    done = capsys.readouterr()
    return code, done.out, done.err


def test_the_command_plans_writes_and_tells(path, tmp_path, capsys):
    out = tmp_path / "planned.onnx"
    code, shown, _ = told(capsys, "plan", path, "--passes", *LEAST, "-o", out, "--json")
    found = json.loads(shown)
    assert code == exit_codes.DONE
    assert found["files"] == [str(out)]
    assert {"baseline_peak_bytes", "order_peak_bytes", "peak_bytes", "lower_bound_bytes", "arena_bytes"} <= {
        *found
    }
    x = np.ones((1, 1, 32, 32), dtype=np.float32)
    assert np.allclose(run(onnx.load(out), x), run(wide(), x), atol=1e-5)
    code, shown, _ = told(capsys, "plan", path, "--passes", *LEAST)
    assert code == exit_codes.DONE
    assert "No order of the planned operators needs less" in shown


@together(
    ("options", "code"),
    [
        (("--memory", "1MiB"), exit_codes.DONE),
        (("--memory", "10KiB"), exit_codes.OVER_BUDGET),
        (("--peak", "50%"), exit_codes.OVER_BUDGET),
        (("--peak", "100%"), exit_codes.DONE),
    ],
)
def test_what_does_not_fit_says_how_much_is_missing(path, options, code, capsys):
    found, shown, _ = told(capsys, "plan", path, "--passes", "none", *options, "--json")
    assert found == code
    content = json.loads(shown)
    assert (content["missing_bytes"] > 0) == (code == exit_codes.OVER_BUDGET)
    _, shown, _ = told(capsys, "plan", path, "--passes", "none", *options)
    assert ("are missing" in shown) == (code == exit_codes.OVER_BUDGET)


@together(
    ("options", "words"),
    [
        (("--memory", "sram=256KiB,psram=4MiB"), "ONNX Runtime has one memory"),
        (("--target", "tflm"), "cannot be planned for 'tflm'"),
        (("--numerics", "close"), "--numerics has no meaning with a model file"),
        (("--atomic",), "--atomic has no meaning with a model file"),
        (("--latency", "1s"), "--latency has no meaning with a model file"),
        (("--passes", "nothing"), "no pass is called 'nothing'"),
        (("--dim", "batch"), "'batch' gives no dim a size"),
        (("--peak", "lots"), "lots"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(path, options, words, capsys):
    code, _, complaint = told(capsys, "plan", path, *options)
    assert code == exit_codes.USAGE
    assert words in complaint


@together(
    ("output", "words"),
    [("wide.onnx", "take the place"), ("", "take the place"), ("plan.json", "is a .onnx file")],
)
def test_a_plan_is_no_file_of_another_kind_and_not_the_model_itself(path, output, words, capsys):
    before = path.read_bytes()
    code, _, complaint = told(capsys, "plan", path, "--passes", "none", "-o", path.parent / output)
    assert (code, path.read_bytes()) == (exit_codes.USAGE, before)
    assert words in complaint


def test_a_model_is_profiled_ordered_and_laid_out(path, capsys):
    for command, key in (("profile", "peak_bytes"), ("order", "peak_bytes"), ("layout", "arena_bytes")):
        code, shown, _ = told(capsys, command, path, "--json")
        assert code == exit_codes.DONE
        assert json.loads(shown)[key] == FILE_PEAK


def trained():
    """The sum of squares of x w + b, whose gradients are known in closed form."""
    return model(
        ["p = MatMul(x, w)", "s = Add(p, b)", "q = Mul(s, s)", node("loss = ReduceSum(q)", keepdims=0)],
        [tensor("x", 1, 3)],
        [tensor("loss")],
        [weight("w", 3, 2), weight("b", 2, seed=1)],
        opset=18,
    )


def test_gradients_are_outputs_and_their_model_is_planned_in_turn(tmp_path, capsys):
    path, out = tmp_path / "loss.onnx", tmp_path / "grad.onnx"
    onnx.save(trained(), path)
    code, shown, _ = told(capsys, "grad", path, "--loss", "loss", "--wrt", "w, b", "-o", out, "--json")
    assert code == exit_codes.DONE
    assert json.loads(shown)["outputs"] == ["w_grad", "b_grad"]
    w, b = (onnx.numpy_helper.to_array(one) for one in trained().graph.initializer)
    x = np.array([[1.0, 2.0, 3.0]], dtype=np.float32)
    # In another order, the parameters are still inputs with a default.
    planned = neaptide.onnx.plan(out, passes="none").to_model()
    for file in (onnx.load(out), planned):
        session = onnxruntime.InferenceSession(file.SerializeToString())
        loss, w_grad, b_grad = session.run(None, {"x": x})
        made = x @ w + b
        assert np.allclose(loss, (made**2).sum(), rtol=1e-5)
        assert np.allclose(w_grad, 2 * x.T @ made, rtol=1e-5)
        assert np.allclose(b_grad, 2 * made[0], rtol=1e-5)
        (other,) = session.run(["loss"], {"x": x, "b": b + 1})
        assert np.allclose(other, ((made + 1) ** 2).sum(), rtol=1e-5), "a parameter is replaced"


@together(
    ("arguments", "words"),
    [
        (("--wrt", "w"), "a gradient is of one value"),
        (("--loss", "loss", "--wrt", "w"), "no file is named"),
        (("--loss", "loss", "--wrt", "nobody", "-o", "out.onnx"), "nobody"),
        (("--loss", "p", "--wrt", "w", "-o", "out.onnx"), "is no loss"),
        (("--loss", "loss", "--wrt", "w", "-o", "./loss.onnx"), "take the place of the model"),
        (("--loss", "loss", "--wrt", "w", "-o", "loss"), "is a .onnx file"),
    ],
)
def test_a_gradient_that_cannot_be_meant_is_refused(tmp_path, monkeypatch, arguments, words, capsys):
    monkeypatch.chdir(tmp_path)
    onnx.save(trained(), "loss.onnx")
    code, _, complaint = told(capsys, "grad", "loss.onnx", *arguments)
    assert code == exit_codes.USAGE
    assert words in complaint


def test_a_c_program_is_written_with_the_arena_that_is_told(path, tmp_path, capsys):
    code, shown, _ = told(
        capsys, "plan", path, "--target", "c", "--passes", *LEAST, "--memory", "20KiB", "-o", tmp_path / "out", "--json"
    )  # fmt: skip
    found = json.loads(shown)
    assert (code, found["missing_bytes"]) == (exit_codes.DONE, 0)
    source, header = (tmp_path / "out" / f"wide.{kind}" for kind in "ch")
    assert found["files"] == [str(source), str(header)]
    assert f"{found['arena_bytes']}" in header.read_text()
    code, shown, _ = told(
        capsys, "plan", path, "--target", "c", "--passes", *LEAST, "--memory", "a=8KiB,b=64KiB", "--json"
    )
    assert code == exit_codes.DONE
    assert [one["name"] for one in json.loads(shown)["memories"]] == ["a", "b"]
    code, shown, _ = told(
        capsys, "plan", path, "--target", "c", "--passes", "none", "--memory", "8KiB", "-o", tmp_path / "no", "--json"
    )  # fmt: skip
    found = json.loads(shown)
    assert (code, found["missing_bytes"]) == (exit_codes.OVER_BUDGET, FILE_PEAK - 8 * 1024)
    assert not list((tmp_path / "no").iterdir())
    assert told(capsys, "plan", path, "--target", "c", "-o", tmp_path / "x.c")[0] == exit_codes.USAGE
    _, shown, _ = told(capsys, "plan", path, "--target", "c", "--passes", "none", "--memory", "a=1KiB,b=8KiB")
    assert "are missing in b." in shown


@together("target", ["ort", "c"])
def test_a_memory_without_bytes_is_refused_by_its_name(target, path, capsys):
    code, _, complaint = told(capsys, "plan", path, "--target", target, "--memory", "0")
    assert code == exit_codes.USAGE
    assert "--memory '0' leaves nothing" in complaint


def test_a_step_of_training_updates_its_weights_in_place_in_c(tmp_path):
    step = neaptide.onnx.grad(trained(), loss="loss", wrt=["w", "b"], sgd=0.1)
    plan = neaptide.onnx.plan(step, passes="none")
    assert plan.to_c("step").variable_bytes == (3 * 2 + 2) * 4


def test_what_the_runtime_fuses_is_planned_and_runs(path, tmp_path, capsys):
    out = tmp_path / "fused.onnx"
    code, shown, _ = told(capsys, "plan", path, "--fuse", "ort", "--passes", "none", "-o", out, "--json")
    assert code == exit_codes.DONE
    assert json.loads(shown)["baseline_peak_bytes"] == FILE_PEAK
    written = onnx.load(out)
    assert [one.op_type for one in written.graph.node][:2] == ["FusedConv", "MaxPool"]
    x = np.random.default_rng(0).standard_normal((1, 1, 32, 32)).astype(np.float32)
    assert np.allclose(run(written, x), run(wide(), x), rtol=1e-5, atol=1e-5)
    assert neaptide.onnx.plan(wide(), fuse="ort", passes="none").peak_bytes == FILE_PEAK


def test_scratch_of_the_runtime_counts_where_it_runs_the_model():
    plan = neaptide.onnx.plan(wide(), target="ort", passes="none")
    assert plan.session_options().intra_op_num_threads == 1
    assert plan.to_json()["target"] == "ort"
    # The input is the caller's; the kernel of the convolution needs scratch beside its result.
    assert plan.peak_bytes > FILE_PEAK - 32 * 32 * 4


def test_a_plan_for_the_runtime_is_never_above_its_own_optimizers(tmp_path):

    made = model(
        [node("a = Conv(x, w)", pads=[1, 1, 1, 1]), "b = Relu(a)", "y = GlobalAveragePool(b)"],
        [tensor("x", 1, 32, 16, 16)],
        [tensor("y", 1, 32, 1, 1)],
        [weight("w", 32, 32, 3, 3)],
    )
    plan = neaptide.onnx.plan(made, target="ort", passes="none")
    # Convolutions on blocks of channels need no columns of the image.
    assert plan.own is not None
    assert plan.peak_bytes == plan.own.peak_bytes < plan.found.peak_bytes
    assert "stays as it is" in plan.to_json()["note"]
    options = plan.session_options()
    assert options.graph_optimization_level != onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    x = np.random.default_rng(0).standard_normal((1, 32, 16, 16)).astype(np.float32)
    assert np.allclose(run(plan.to_model(), x, options), run(made, x), rtol=1e-5, atol=1e-5)
    assert [one.op_type for one in plan.to_model().graph.node] == [one.op_type for one in made.graph.node]


def quantised():
    """A convolution and a Relu between dequantisations and quantisations."""
    scale, zero = numpy_helper.from_array(np.float32(0.0973), "s"), numpy_helper.from_array(np.uint8(3), "z")
    none = numpy_helper.from_array(np.int8(0), "n")
    filters = numpy_helper.from_array(np.arange(-36, 36, dtype=np.int8).reshape(8, 1, 3, 3), "w")
    return model(
        [
            "q = QuantizeLinear(x, s, z)",
            "a = DequantizeLinear(q, s, z)",
            "f = DequantizeLinear(w, s, n)",
            node("c = Conv(a, f)", pads=[1, 1, 1, 1]),
            "r = Relu(c)",
            "y = QuantizeLinear(r, s, z)",
        ],
        [tensor("x", 1, 1, 16, 16)],
        [tensor("y", 1, 8, 16, 16, kind=onnx.TensorProto.UINT8)],
        [scale, zero, none, filters],
        opset=18,
    )


def test_a_search_keeps_the_bits_of_a_quantised_model_and_passes_by_name_may_not():
    made = neaptide.onnx.plan(quantised(), passes="learned", work_limit=12)
    assert BY_NAME_ONLY.isdisjoint(step.name for step in made.found.steps)
    assert made.peak_bytes < made.found.order_peak_bytes
    named = neaptide.onnx.plan(quantised(), passes=("integer_operators",))
    assert [step.name for step in named.found.steps] == ["integer_operators"]
    assert named.peak_bytes < made.found.order_peak_bytes
    both = neaptide.onnx.plan(quantised(), passes=("learned", "integer_operators"), work_limit=12)
    assert both.peak_bytes <= min(made.peak_bytes, named.peak_bytes)
    x = np.random.default_rng(0).standard_normal((1, 1, 16, 16)).astype(np.float32)
    options = made.session_options()
    expected = run(quantised(), x, options)
    np.testing.assert_array_equal(run(made.to_model(), x, options), expected)
    steps = run(named.to_model(), x, options).astype(int) - expected
    assert abs(steps).max() <= 1


def test_passes_beside_the_learned_order_are_those_that_it_does_not_take_by_itself():
    with pytest.raises(UsageError, match="'learned' takes 'windows_4' by itself"):
        neaptide.onnx.plan(quantised(), passes=("learned", "windows_4"))
