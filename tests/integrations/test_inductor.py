"""The lowering by Inductor: numbers of eager within rounding, peaks as predicted, and what is planned after fusion."""

from __future__ import annotations

import copy
import itertools
import textwrap
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

from neaptide.cost.cards.allocator_events import record
from neaptide.errors import InfeasibleBudget, LoweringError
from neaptide.frontends import _torch_private as frontends
from neaptide.integrations.torch_compile import ledger as ledger_module
from neaptide.integrations.torch_compile import neaptide
from neaptide.integrations.torch_compile._torch_private import aot_backend
from neaptide.integrations.torch_compile.inductor import _torch_private as inductor
from neaptide.integrations.torch_compile.inductor import prediction
from neaptide.integrations.torch_compile.inductor._torch_private import Generated, Kernel
from neaptide.integrations.torch_compile.inductor.mutations import write_in_forward
from neaptide.integrations.torch_compile.inductor.program import Meter, play
from neaptide.integrations.torch_compile.inductor.rounds import Problem, rounds_for
from neaptide.integrations.torch_compile.inductor.scratch import Call, scratch_bytes
from neaptide.integrations.torch_compile.joint.joint_graph import Sides
from neaptide.integrations.torch_compile.ledger import ledgers
from neaptide.integrations.torch_compile.options import Options
from neaptide.integrations.torch_compile.programs.boxed import boxed
from neaptide.runtime.measuring.meter import storage_bytes


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Any:
    torch._dynamo.reset()
    monkeypatch.setattr(ledger_module, "_ledgers", [])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module="torch")
        yield
    torch._dynamo.reset()


# -- programs that Inductor writes


def played(body: str, *shapes: tuple[int, ...]) -> tuple[list[int], tuple[Any, ...]]:
    """How the bytes above those of its arguments change while a program runs, and what it returns."""
    source = "\n".join(
        (
            "import torch",
            "from torch._inductor.async_compile import AsyncCompile",
            "aten = torch.ops.aten",
            "async_compile = AsyncCompile()",
            "cpp_fused_0 = async_compile.cpp_pybinding(['float*'], 'no code')",
            "async_compile.wait(globals())",
            "def call(args):",
            textwrap.indent(textwrap.dedent(body), "    "),
        )
    )
    mode, meter = frontends.new_fake_mode(), Meter()
    args = [
        frontends.new_fake(mode, shape, (1,) * len(shape), torch.uint8, torch.device("cpu"))
        for shape in shapes
    ]
    for position in range(len(args)):
        meter.enter(args[position])
    start = meter.live_bytes
    with mode:
        returned = play(source, args, meter, {})
    return [live for live, _ in itertools.groupby(live - start for live, _ in meter.moments)], returned


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # Two buffers live at once, then the first one dies.
        (
            """
            x, = args; args.clear()
            buf0 = empty_strided_cpu((1024,), (1,), torch.uint8)
            cpp_fused_0(x, buf0)
            buf1 = empty_strided_cpu((512,), (1,), torch.uint8)
            del buf0
            buf2 = empty_strided_cpu((256,), (1,), torch.uint8)
            return (buf1, buf2)
            """,
            [1024, 1536, 768],
        ),
        # A buffer is reused under another name and shape; the argument dies as well.
        (
            """
            x, = args; args.clear()
            buf0 = empty_strided_cpu((1024,), (1,), torch.uint8)
            del x
            buf1 = reinterpret_tensor(buf0, (512,), (2,), 0); del buf0  # reuse
            buf2 = empty_strided_cpu((8,), (1,), torch.uint8)
            return (buf1, buf2)
            """,
            [1024, 1024 - 64, 1032 - 64],
        ),
        # Results of an operation of ATen are as large as it makes them; one that is not kept dies with their tuple.
        (
            """
            x, = args; args.clear()
            buf0 = torch.ops.aten.max_pool1d_with_indices.default(x.float().view(1, 64), [2], [2])
            buf1 = buf0[0]
            del buf0
            buf2 = aten.neg.default(buf1)
            return (buf2,)
            """,
            None,
        ),
    ],
)
def test_a_program_is_played_as_its_python_says(body: str, expected: list[int] | None) -> None:
    found, returned = played(body, (64,))
    if expected is None:
        assert returned[0].shape == (1, 32)
        # Pooled floats of 128 bytes, and their negative; indices are gone.
        assert found[-1] <= 2 * 128
    else:
        assert found == expected


def test_an_operation_with_out_allocates_what_it_allocates_without() -> None:
    mode = frontends.new_fake_mode()
    a, b, c = (frontends.new_fake(mode, (8, 8), (8, 1), torch.float32, torch.device("cpu")) for _ in range(3))
    call = Call.of(torch.ops.aten.mm.out, (a, b), {"out": c})
    assert call == Call.of(torch.ops.aten.mm.default, (a, b), {})
    assert call is not None
    assert call.operation is torch.ops.aten.mm.default
    assert Call.of(torch.ops.aten.view.default, (a, [64]), {}) is None
    assert scratch_bytes([call, call]) == {call: 0}


def joint_with_statistics() -> tuple[fx.GraphModule, Sides]:
    """A joint graph that overwrites a primal at its end, after the backward has read the old contents."""
    graph = fx.Graph()
    x, old, tangent = (graph.placeholder(name) for name in ("primals_1", "primals_2", "tangents_1"))
    used = graph.call_function(torch.ops.aten.mul.Tensor, (x, old))
    new = graph.call_function(torch.ops.aten.add.Tensor, (old, 1))
    gradient = graph.call_function(torch.ops.aten.mul.Tensor, (tangent, old))
    copied = graph.call_function(torch.ops.aten.copy_.default, (old, new))
    graph.output((used, gradient, None))
    return fx.GraphModule(nn.Module(), graph), Sides(
        (x, old), (tangent,), (used,), (gradient, None), {old: copied}
    )


def test_inputs_are_overwritten_in_the_forward_pass_and_the_backward_reads_what_they_were() -> None:
    module, sides = joint_with_statistics()
    ((old, copied),) = sides.overwritten.items()
    found = write_in_forward(module, Sides(sides.primals, sides.tangents, sides.outputs, sides.gradients, {}))
    assert found.overwritten == {old: copied}
    targets = [str(node.target) for node in module.graph.nodes]
    in_backward = targets.index("aten.mul.Tensor", targets.index("aten.mul.Tensor") + 1)
    assert targets.index("aten.clone.default") < targets.index("aten.copy_.default") < in_backward
    module.recompile()
    x, state, tangent = torch.tensor(2.0), torch.tensor(3.0), torch.tensor(5.0)
    assert module(x, state, tangent)[:2] == (6.0, 15.0)
    assert state == 4.0


# -- kernels as operations


def generated(module: fx.GraphModule) -> Generated:
    """A program whose kernels are what stands between two multiplications of matrices."""
    kernels: list[set[str]] = [set()]
    for node in module.graph.nodes:
        if node.target in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            kernels += [{node.name}, set()]
        elif node.op == "call_function":
            kernels[-1].add(node.name)
    return Generated(
        "", {}, tuple(Kernel(f"op{k}", frozenset(names)) for k, names in enumerate(kernels) if names)
    )


class Layers(nn.Module):
    """Layers with a shared input, dropout, and a count that is overwritten."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        for layer in self.layers:
            x = F.dropout(F.gelu(layer(x)).softmax(1) + x, 0.3)
        return x.square().sum() * self.count


class Logits(Layers):
    """The same, which returns a view as well: it is made before the border, and reads no gradient."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        self.count += 1
        for layer in self.layers:
            x = F.gelu(logits := layer(x))
        return logits.square().sum() * self.count, logits.view(2, 4, 16)


@pytest.mark.parametrize(("made_by", "peak"), [(Layers, "min"), (Layers, "100%"), (Logits, "min")])
def test_kernels_are_planned_whole_and_compute_what_their_nodes_computed(
    made_by: type[nn.Module], peak: str
) -> None:
    problems: list[Problem] = []

    def partition(joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **_more: Any) -> Any:
        own = inductor.own_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, compiler="inductor")
        problem = Problem.of(joint, own, tuple(map(generated, own)), num_fwd_outputs)
        problems.append(problem)
        options = Options(peak=peak, time_limit=1, on_infeasible="best")
        return problem.planned(options, ())[1]

    compilers = dict.fromkeys(("fw_compiler", "bw_compiler"), lambda module, _inputs: boxed(module))
    torch.manual_seed(0)
    model, batch = made_by(), torch.randn(8, 16)
    eager = copy.deepcopy(model)
    step = torch.compile(model, backend=aot_backend(**compilers, partition_fn=partition))
    found = []
    for one, call in ((model, step), (eager, eager)):
        torch.manual_seed(1)
        found.append(trained(one, lambda given, call=call: summed(call(given)), batch))
    for mine, other in zip(*found, strict=True):
        assert torch.equal(mine, other)
    (problem,) = problems
    kernels = [node for node in problem.joint.graph.nodes if node.op == "neaptide.kernel.default"]
    assert len(kernels) >= (4 if made_by is Layers else 1)
    assert len(kernels) <= len(problem.bodies)
    assert not problem.joint.unknown_ops
    assert len(problem.joint.graph.nodes) < len(problem.joint.module.graph.nodes)


@pytest.mark.parametrize(
    ("factor", "aims"),
    [
        (1.0, [1000]),
        (1.1, [1000, 900]),  # Inductor takes more than planned: the next plan aims lower
        (0.8, [1000, 1200]),  # it takes less: the next one recomputes less
    ],
)
def test_the_next_plan_aims_by_what_inductor_made_of_the_last(
    factor: float, aims: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class Exact:
        """Plans take what they may take."""

        joint = SimpleNamespace(sides=SimpleNamespace(outputs=()))

        def planned(self, options: Options, _names: Any) -> Any:
            asked.append(int(str(options.peak).removesuffix("B")))
            made = SimpleNamespace(peak_with_workspace_bytes=asked[-1], seconds=1 / asked[-1])
            return SimpleNamespace(predictions=made), (asked[-1], asked[-1])

    made = lambda aim, *_more: SimpleNamespace(peak_bytes=round(aim * factor))  # noqa: E731
    monkeypatch.setattr(prediction, "of_training", made)
    found = rounds_for(Exact(), Options(peak="1000B"), 1000)  # type: ignore[arg-type]
    assert asked == aims
    assert found[-1].compiled.peak_bytes <= 1000


def summed(given: Any) -> torch.Tensor:
    """One number that follows from all that a model returns."""
    total: torch.Tensor = sum(one.mean() for one in (given if isinstance(given, tuple) else (given,)))
    return total


# -- models


class Norms(nn.Module):
    """A convolution with batch norm, whose statistics are written, and layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.conv(x))).flatten(2).mT
        for layer in self.layers:
            x = F.gelu(layer(x)) + x
        return x.logsumexp(2).mean()


def trained(model: nn.Module, call: Any, batch: torch.Tensor) -> list[torch.Tensor]:
    loss = call(batch)
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters()), *model.buffers()]


def made() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Norms(), torch.randn(4, 3, 16, 16)


class Scored(nn.Sequential):
    """Layers with a loss."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = super().forward(x).logsumexp(1).mean()
        return loss


def chain() -> tuple[nn.Module, torch.Tensor]:
    """Layers in a chain, whose activations are most of the peak: each can be recomputed from the one before it."""
    torch.manual_seed(0)
    layers = (layer for _ in range(5) for layer in (nn.Linear(16, 16), nn.GELU()))
    return Scored(*layers), torch.randn(512, 16)


def check_training(peak: str | None, made: Any = made) -> Any:
    """Numbers are eager's but for rounding, and the measured peak is the predicted one; returns what is planned."""
    model, batch = made()
    eager = copy.deepcopy(model)
    options = {"lowering": "inductor", "peak": peak, "time_limit": 4, "on_infeasible": "best"}
    step = torch.compile(model, backend=lambda *given: neaptide(*given, options=options))
    for mine, other in zip(trained(model, step, batch), trained(eager, eager, batch), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
    model.zero_grad()
    persistent = [*model.parameters(), *model.buffers(), batch]

    def run() -> None:
        step(batch).backward()
        model.zero_grad()

    measured = record(run, persistent=persistent).peak_bytes(storage_bytes(persistent))
    (piece,) = ledgers()[-1].pieces.values()
    assert piece.predicted_peak_bytes == pytest.approx(measured, rel=0.02)
    assert "Inductor" in str(piece)
    return piece


def test_a_model_in_training_runs_by_inductors_kernels_at_the_predicted_peak() -> None:
    piece = check_training(None)
    assert piece.recomputed == 0
    assert piece.predicted_peak_bytes == piece.baseline_peak_bytes


@pytest.mark.slow
@pytest.mark.parametrize("peak", ["85%", "min"])
def test_a_lower_peak_is_reached_by_recomputation(peak: str) -> None:
    piece = check_training(peak, chain)
    assert piece.recomputed > 0
    assert piece.predicted_peak_bytes < piece.baseline_peak_bytes


@pytest.mark.slow
def test_a_budget_below_what_is_held_is_an_error() -> None:
    model, batch = made()
    options = {"lowering": "inductor", "peak": "2%", "time_limit": 2}
    step = torch.compile(model, backend=lambda *given: neaptide(*given, options=options))
    with pytest.raises(InfeasibleBudget, match=r"the lowest peak is") as caught:
        step(batch)
    assert caught.value.smallest_peak_bytes > 0


@pytest.mark.slow
def test_inference_is_ordered_and_runs_by_inductors_kernels() -> None:
    model, batch = made()
    model.eval()
    options = {"lowering": "inductor", "time_limit": 2}
    step = torch.compile(model, backend=lambda *given: neaptide(*given, options=options))
    with torch.no_grad():
        torch.testing.assert_close(step(batch), model(batch), rtol=1e-4, atol=1e-5)
    (piece,) = ledgers()[-1].pieces.values()
    assert piece.saved_bytes == piece.recomputed == 0


@pytest.mark.slow
def test_one_program_serves_all_sizes_of_a_dynamic_dim() -> None:
    model, _ = made()
    eager = copy.deepcopy(model)
    options = {"lowering": "inductor", "peak": "90%", "time_limit": 4, "on_infeasible": "best"}
    step = torch.compile(model, backend=lambda *given: neaptide(*given, options=options))
    torch._dynamo.utils.counters.clear()
    for size in (4, 7):
        batch = torch.randn(size, 3, 16, 16)
        torch._dynamo.mark_dynamic(batch, 0)
        for mine, other in zip(trained(model, step, batch), trained(eager, eager, batch), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_without_a_compiler_the_user_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inductor, "without_compiler", lambda _device: "no compiler is here")
    model, batch = made()
    step = torch.compile(model, backend=lambda *given: neaptide(*given, options={"lowering": "inductor"}))
    with pytest.raises(LoweringError, match=r"cannot compile for cpu here\s+why: no compiler is here"):
        step(batch)
