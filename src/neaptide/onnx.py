"""Models of ONNX: planned for less memory, in Python.

    import neaptide.onnx

    plan = neaptide.onnx.plan("model.onnx", peak="256KiB")
    plan.save("planned.onnx")
    session = onnxruntime.InferenceSession("planned.onnx", plan.session_options())

Models are paths or `onnx.ModelProto`; torch is not needed.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack

from neaptide.analysis.folded import folded_values
from neaptide.budget import Budget
from neaptide.errors import InfeasibleBudget, TargetError, UsageError
from neaptide.frontends.onnx.file import load_model
from neaptide.frontends.onnx.prepare import prepare
from neaptide.frontends.onnx.reader import read_model
from neaptide.lower.onnx.session import session_options
from neaptide.lower.onnx.writable import writable
from neaptide.lower.onnx.writer import save_model, write_model
from neaptide.ops.onnx import registry
from neaptide.outcome import Limits
from neaptide.planner.model_plan import ModelAsk, ModelPlan, plan_model
from neaptide.planner.passes.plan_passes import LEARNED
from neaptide.settings import DEFAULT_TIME_LIMIT_S
from neaptide.transform.passes import PASSES
from neaptide.units import format_bytes

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import SessionOptions

    from neaptide.frontends.onnx.model import OnnxModel
    from neaptide.ir.graph import Graph
    from neaptide.lower.c.write import CProgram
    from neaptide.lower.onnx.own_optimizers import OwnOptimizers
    from neaptide.schedule.order.problem import OrderProblem

ORT: Final = "ort"
"""Peaks are what ONNX Runtime allocates: scratch of its kernels is measured, and in place is what they do in place."""
C: Final = "c"
"""Peaks are those of the program that `OnnxPlan.to_c` writes."""


@dataclass(frozen=True, slots=True, eq=False)
class OnnxPlan:
    """A plan of a model.

    Attributes:
        source: the model as it was read.
        found: the graph after the passes, its order and layout, and the peaks.
        target: `ort` where peaks are those of ONNX Runtime, `c` where they are those of C; None where they are footprints.
        note: one sentence on what could not be counted; may be empty.
        own: where ONNX Runtime's own optimizers need less on the model as it is: the plan is then that.
    """

    source: OnnxModel
    found: ModelPlan
    target: str | None = None
    note: str = ""
    own: OwnOptimizers | None = None

    @property
    def peak_bytes(self) -> int:
        """Highest bytes of activations and inputs at once; weights do not count."""
        return self.found.peak_bytes if self.own is None else self.own.peak_bytes

    def to_model(self) -> ModelProto:
        """The planned model: nodes in the planned order, weights as initializers, the user's names of inputs and outputs."""
        if self.own is not None:
            return self.own.model
        return write_model(self.source, self.found.graph, self.found.order)

    def save(self, path: str | Path) -> None:
        """Write the planned model. Raises `UsageError` where that fails."""
        save_model(self.to_model(), Path(path))

    def to_c(self, name: str, memories: Mapping[str, int | None] | None = None) -> CProgram:
        """The planned model as a C file and a header with one static arena, or one in each memory.

        Of a step of training that `grad` has made, each output `NAME_new` takes the place of the weight `NAME`.

        Args:
            name: of the files and in front of all names in them; an identifier of C.
            memories: capacities in bytes by name, the fastest first; None for one without end.

        Raises:
            LoweringError: an operator or element type has no kernel in C.
            InfeasibleBudget: the memories are too small.
        """
        from neaptide.lower.c.memory import ONE_MEMORY, Memory
        from neaptide.lower.c.of_model import write_c
        from neaptide.lower.c.write import CSettings

        spaces = tuple(Memory(space, size) for space, size in (memories or {}).items()) or ONE_MEMORY
        return write_c(
            self.source,
            name,
            CSettings(spaces),
            graph=self.found.graph,
            order=self.found.order,
            updates=_updates(self.source),
        )

    def session_options(self) -> SessionOptions:
        """Options under which ONNX Runtime keeps the planned order; see `lower.onnx.session`.

        With the target `ort` a kernel runs on one thread, as it did when its scratch was measured: each thread has its own.
        """
        options = session_options(keep_dequantisations=self.own is None)
        if self.target == ORT:
            options.intra_op_num_threads = 1
        return options if self.own is None else self.own.session_options(options)

    def to_json(self) -> dict[str, Any]:
        """Peaks in bytes, and for each pass what it did and what it enabled."""
        found = self.found
        return {
            "name": found.graph.name,
            "target": self.target,
            "baseline_peak_bytes": found.baseline_peak_bytes,
            "order_peak_bytes": found.order_peak_bytes,
            "peak_bytes": self.peak_bytes,
            "lower_bound_bytes": min(found.lower_bound_bytes, self.peak_bytes),
            "arena_bytes": found.arena_bytes,
            "measurements": found.measurements,
            "passes": [
                {
                    "name": step.name,
                    "before_bytes": step.before_bytes,
                    "after_bytes": step.after_bytes,
                    "change_bytes": -step.saved_bytes,
                    "enabled": [
                        {"step": one.step, "name": found.steps[one.step].name,
                         "saved_before_bytes": one.saved_before_bytes}
                        for one in step.enabled
                    ],
                }
                for step in (found.steps if self.own is None else ())
            ],
            "operators": _operators(found.graph),
            "unknown_operators": unknown_operators(found.graph),
            "note": self.note,
        }  # fmt: skip


class SearchLimits(TypedDict, total=False):
    """Limits of the searches for a plan.

    Attributes:
        time_limit_s: seconds, 20 by default, and none where there is a `work_limit`; None for no limit.
        work_limit: graphs that the search for passes measures, at most 20; the answer is then the same on every machine.
        seed: of searches that draw.
    """

    time_limit_s: float | None
    work_limit: int | None
    seed: int


def _limits(given: SearchLimits) -> Limits:
    work = given.get("work_limit")
    time_s = given.get("time_limit_s", DEFAULT_TIME_LIMIT_S if work is None else None)
    return Limits(time_s=time_s, work=work, seed=given.get("seed", 0))


def plan(
    model: ModelProto | str | Path,
    *,
    peak: str | int | None = "min",
    passes: str | Iterable[str] = LEARNED,
    target: Literal["ort", "c"] | None = None,
    fuse: Literal["ort"] | None = None,
    dims: Mapping[str, int] | None = None,
    interrupt: threading.Event | None = None,
    progress: Callable[[str], None] = lambda _: None,
    **limits: Unpack[SearchLimits],
) -> OnnxPlan:
    """Plan a model for less memory: passes change it, and its nodes run in another order. The model is left as it is.

    The footprint counts activations and the model's inputs, which die after their last use; weights do not count. The
    answer of `passes="learned"` is never above the model as it is.

    Args:
        model: of opset 7 or later.
        peak: highest footprint: a size such as `"256KiB"`, a number of bytes, a share of the file's own such as `"60%"`,
            or `"min"` for the lowest that is found. None: no higher than the file's own.
        passes: `"learned"`, `"none"`, or names in the order in which they are to run. Beside `"learned"`, names of passes that
            no search takes by itself.
        target: `"ort"`: peaks are what ONNX Runtime allocates, scratch of its kernels included, measured here once. `"c"`:
            slices and joins take no bytes where `to_c` makes none for them.
        fuse: `"ort"`: ONNX Runtime fuses operators first, and its graph is planned; only it runs the result.
        dims: sizes of named dims of the inputs; all need one.
        interrupt: set it to end all searches with the best plan so far.
        limits: of all searches together, see `SearchLimits`.

    Raises:
        InfeasibleBudget: no plan was found within `peak`; its `plan` is the best that was.
        TargetError: it is no sound model, or a dim has no size.
        UnsupportedModel: the model holds what cannot be planned.
    """
    source = read_model(model if fuse is None else _fused(model, fuse), dims)
    if source.graph.dims:
        free = ", ".join(source.dims[dim.name] for dim in source.graph.dims)
        raise TargetError(
            f"the model has dims without a size: {free}",
            next_step="give each a size in dims, or as --dim NAME=SIZE",
        )
    names = (passes,) if isinstance(passes, str) else tuple(passes)
    budget = Budget(peak=peak)
    counted, note = _counted(source, target)
    rules = writable(PASSES, source.opsets.get("", 1))
    ask = ModelAsk(registry(), rules, counted, names, lambda base: 0 if budget.is_min else budget.limit(base))
    found = plan_model(source.graph, ask, _limits(limits), interrupt, progress)
    made = OnnxPlan(source, found, target, note)
    if target == ORT and not note:
        made = _or_as_it_is(made, load(model if fuse is None else _fused(model, fuse)))
    allowed = budget.limit(found.baseline_peak_bytes)
    if made.peak_bytes > allowed and not budget.is_min:
        raise InfeasibleBudget(
            f"the lowest footprint that was found is {format_bytes(made.peak_bytes)}, "
            f"{made.peak_bytes - allowed} bytes above {format_bytes(allowed)}",
            smallest_peak_bytes=made.peak_bytes,
            lower_bound_bytes=found.lower_bound_bytes,
            plan=made,
            why=f"no order of its operators needs less than {format_bytes(found.lower_bound_bytes)}",
            next_step="allow more, or name passes of docs/reference/passes.md",
        )
    return made


def _or_as_it_is(made: OnnxPlan, model: ModelProto) -> OnnxPlan:
    """The plan, or the model as it is where ONNX Runtime's own optimizers need less."""
    from neaptide.lower.onnx.own_optimizers import own_optimizers

    own = own_optimizers(model, made.to_model())
    if own is None:
        return made
    note = (
        f"the model stays as it is: ONNX Runtime's own optimizers ({own.options.optimize!r}) need less than any "
        "order of its operators that was found, and session_options() turns them on"
    )
    return replace(made, note=note, own=own)


def _updates(source: OnnxModel) -> dict[str, str]:
    """By name of an output, the weight that it replaces: those of a step of training that `grad` has made."""
    outputs = {source.file_name(value) for value in source.graph.outputs}
    weights = (source.names.get(name, name) for name in source.weights)
    return {f"{name}_new": name for name in weights if f"{name}_new" in outputs}


def _operators(graph: Graph) -> int:
    """How many nodes there are that do not make weights."""
    weights = folded_values(graph)
    return sum(not weights.issuperset(node.outputs) for node in graph.nodes)


def grad(
    model: ModelProto | str | Path, *, loss: str, wrt: Sequence[str], sgd: float | None = None
) -> ModelProto:
    """A model that also computes gradients, in nodes of the standard domain: any runtime of the model runs it.

    Args:
        model: it is left as it is.
        loss: name of a value with one element.
        wrt: names of initializers, inputs or values. Each gives an output `NAME_grad` in the shape of the value.
        sgd: a learning rate. The outputs are then `NAME_new`, the updated values, and no gradients.

    Raises:
        UsageError: a name that the model does not have, or a loss with several elements.
        GradientError: an operator on the path has no rule, or a shape that a rule needs is not known.
    """
    source = load(model)
    import onnx_ir

    from neaptide.autodiff.gradient import grad as extended

    made: ModelProto = onnx_ir.to_proto(extended(onnx_ir.from_proto(source), loss, tuple(wrt), sgd))
    return made


def load(model: ModelProto | str | Path) -> ModelProto:
    """The model of a path, with the bytes of its weights; a model in memory is handed back."""
    found, path = load_model(model)
    if path is not None:
        from onnx import external_data_helper

        prepare(found, path, {})  # finds what is missing, or lies outside the folder
        external_data_helper.load_external_data_for_model(found, str(path.absolute().parent))
    return found


def save(model: ModelProto, path: str | Path) -> None:
    """Write a model. Raises `UsageError` where that fails."""
    save_model(model, Path(path))


def unknown_operators(graph: Graph) -> dict[str, int]:
    """How many nodes there are of each operation that has no row; they are left where they are."""
    known, found = registry(), dict[str, int]()
    for node in graph.nodes:
        if known.find(node.op) is None:
            found[node.op] = found.get(node.op, 0) + 1
    return found


def _fused(model: ModelProto | str | Path, fuse: str) -> ModelProto:
    """The model as ONNX Runtime runs it after its fusions."""
    if fuse != ORT:
        raise UsageError(f"nothing called {fuse!r} fuses operators", next_step=f"choose {ORT!r}, or None")
    from neaptide.cost.onnxruntime.model_files import fused_model

    found, path = load_model(model)
    if path is not None:
        return type(found).FromString(fused_model(path.absolute()))
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "model.onnx"
        save_model(found, written)
        return type(found).FromString(fused_model(written))


def _counted(source: OnnxModel, target: str | None) -> tuple[Callable[[Graph], OrderProblem], str]:
    """The ordering problem of a graph for what runs it, and a sentence on what is not counted."""
    if target is None:
        from neaptide.schedule.order.of_model import model_problem

        return lambda graph: model_problem(graph, registry()), ""
    if target == C:
        from neaptide.lower.c.order import MOST_NUMBERS as LISTED
        from neaptide.lower.c.order import c_problem

        listed = source.small_numbers(LISTED)
        return lambda graph: c_problem(graph, registry(), listed), ""
    if target != ORT:
        raise UsageError(f"there is no target {target!r}", next_step=f"choose {ORT!r}, {C!r}, or None")
    from neaptide.cost.onnxruntime.calls import MOST_NUMBERS
    from neaptide.cost.onnxruntime.scratch import KernelMeter
    from neaptide.schedule.order.of_runtime import runtime_problem

    meter, numbers = KernelMeter(), source.small_numbers(MOST_NUMBERS)

    note = meter.scratch(source.graph, numbers).note
    if note:
        return _counted(source, None)[0], note

    def counted(graph: Graph) -> OrderProblem:
        return runtime_problem(graph, meter.scratch(graph, numbers))

    return counted, ""
