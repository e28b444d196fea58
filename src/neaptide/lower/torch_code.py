"""Plan -> readable Python that calls ATen, one line an operation, every storage freed at its last use.

No autograd objects, no hidden references: names are deleted directly behind the step that needs them last, so that
what is alive is what `analysis.liveness` says.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from neaptide.analysis.liveness import compute_liveness, with_frees
from neaptide.errors import LoweringError
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import LOOP_OP, Access, Arg, Loop, Named, Node, Ref
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule, Step, StepKind
from neaptide.ir.values import Value
from neaptide.lower.program import Program
from neaptide.ops.structural import CONSTANT_OP, HOST_FUNCTIONS
from neaptide.symbolic.size_expr import SizeExpr

INDENT = "    "


@dataclass(frozen=True, slots=True)
class Watch:
    """Copy a value, under `name`, as soon as its storage has reached `version`; for verify runs only."""

    name: str
    value: int
    version: int


def lower(
    graph: Graph, schedule: Schedule, registry: OpRegistry, *, watches: Sequence[Watch] = ()
) -> Program:
    """Generate the program of a schedule. O(size of the schedule).

    Args:
        graph: static shapes; loops are emitted as nested functions.
        schedule: legal (see `analysis.legality`); `FREE` steps are put in anew.
        registry: which operands matter only by their shape, and how an impure op is replayed.
        watches: values to copy on the way; the program then takes a second argument, a dict that it fills.

    Raises:
        LoweringError: an operation that torch does not have, or a size that is not constant.
    """
    writer = _Writer(registry)
    writer.function("program", graph, schedule, watches)
    text = "\n".join(writer.lines) + "\n"
    return Program(graph, with_frees(graph, schedule), text, tuple(writer.line_nodes), writer.names)


@dataclass
class _Writer:
    registry: OpRegistry
    lines: list[str] = field(default_factory=list)
    line_nodes: list[int | None] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=lambda: {"torch": torch})
    functions: int = 0

    def emit(self, text: str, node: int | None = None, depth: int = 1) -> None:
        self.lines.append(INDENT * depth + text if text else "")
        self.line_nodes.append(node)

    def function(self, name: str, graph: Graph, schedule: Schedule, watches: Sequence[Watch] = ()) -> None:
        """Emit `def name(args)`; the bodies of its loops are emitted before it."""
        loops = {n.id: self._loop_body(n) for n in graph.nodes if n.regions}
        self.emit(f"def {name}(args{', watched' if watches else ''}):", depth=0)
        inputs = [variable(graph.values[v]) for v in graph.inputs]
        if inputs:
            self.emit(f"[{', '.join(inputs)}] = args")
            self.emit("args.clear()")
        liveness = compute_liveness(graph, schedule)
        by_version: dict[Access, list[Watch]] = {}
        for watch in watches:
            storage = graph.values[watch.value].storage
            assert storage is not None
            by_version.setdefault(Access(storage, watch.version), []).append(watch)
        module = ""
        for position, step in enumerate(liveness.steps):
            node = graph.nodes[step.target]
            here = f"{node.source.phase} {node.source.module}".strip()
            if here != module:
                module = here
                self.emit(f"# {module}" if module else "#")
            dead = liveness.deaths[position]
            if node.regions:
                self._loop(graph, node, loops[node.id])
            else:
                self._operation(graph, node, step, set(dead))
            if step.kind is not StepKind.RECOMPUTE:
                self._watch(graph, node, by_version)
            gone = [variable(graph.values[v]) for v in dead if not self._unnamed(graph, node, v, set(dead))]
            if gone:
                self.emit(f"del {', '.join(gone)}", node.id)
        outputs = "".join(f"{variable(graph.values[v])}, " for v in graph.outputs)
        self.emit(f"return ({outputs.strip()})" if outputs else "return ()")
        self.emit("", depth=0)

    # -- one operation ----------------------------------------------------------------------------------------

    def _unnamed(self, graph: Graph, node: Node, value: int, dead: set[int]) -> bool:
        """A single result that nobody uses is not given a name, so there is nothing to delete."""
        return node.outputs == (value,) and _is_plain(node) and value in dead and not node.regions

    def _operation(self, graph: Graph, node: Node, step: Step, dead: set[int]) -> None:
        spec = self.registry.find(node.op)
        op, args, kwargs, results = node.op, node.args, dict(node.kwargs), node.results
        if step.kind is StepKind.RECOMPUTE and spec is not None and spec.replay is not None and node.effects.writes:
            op = spec.replay.op
            args = tuple(node.args[p] for p in spec.replay.positions)
            kwargs = {}
        call = self._call(graph, node, op, args, kwargs)
        comment = f"  # {node.source.location}" if node.source.file else ""
        if step.kind is StepKind.RECOMPUTE:
            comment = f"  # again{', ' + comment[4:] if comment else ''}"
        if not node.outputs:
            self.emit(call + comment, node.id)
        elif _is_plain(node) and len(node.outputs) == 1:
            value = node.outputs[0]
            name = variable(graph.values[value])
            self.emit((call if value in dead else f"{name} = {call}") + comment, node.id)
        else:
            structure = results if results is not None else tuple(Ref(k) for k in range(len(node.outputs)))
            self.emit(f"{self._target(graph, node, structure)} = {call}{comment}", node.id)

    def _target(self, graph: Graph, node: Node, structure: Arg) -> str:
        if isinstance(structure, Ref):
            return variable(graph.values[node.outputs[structure.slot]])
        if isinstance(structure, tuple):
            return "[" + ", ".join(self._target(graph, node, item) for item in structure) + "]"
        return "_"

    def _call(self, graph: Graph, node: Node, op: str, args: tuple[Arg, ...], kwargs: dict[str, Arg]) -> str:
        spec = self.registry.find(op)
        needed = set(needed_inputs(graph, node))
        shape_only = [v for v in node.inputs if v not in needed]
        texts = [self._arg(graph, node, a, needed) for a in args]
        named = {k: self._arg(graph, node, a, needed) for k, a in kwargs.items()}
        if op == CONSTANT_OP:
            return self._constant(args)
        if op in HOST_FUNCTIONS:
            name = op.replace(".", "_")
            self.names[name] = HOST_FUNCTIONS[op]
            return f"{name}({', '.join(texts)})"
        if shape_only and spec is not None and kwargs.get("device") is None:
            device = _device_of(graph, node)
            named["device"] = self._named(Named("device", device))
        texts += [f"{k}={v}" for k, v in named.items()]
        return f"{self._op(op, node)}({', '.join(texts)})"

    def _op(self, op: str, node: Node) -> str:
        name = op.replace(".", "_").replace("::", "_")
        if name not in self.names:
            self.names[name] = resolve_op(op, node.source.location)
        return name

    def _arg(self, graph: Graph, node: Node, arg: Arg, needed: set[int]) -> str:
        if isinstance(arg, Ref):
            value = graph.values[node.inputs[arg.slot]]
            return variable(value) if value.id in needed else self._stand_in(value)
        if isinstance(arg, tuple):
            return "[" + ", ".join(self._arg(graph, node, a, needed) for a in arg) + "]"
        if isinstance(arg, Named):
            return self._named(arg)
        if isinstance(arg, SizeExpr):
            return str(_size(arg))
        if isinstance(arg, float):
            return repr(arg) if arg == arg and abs(arg) != float("inf") else f'float("{arg}")'
        return repr(arg)

    def _stand_in(self, value: Value) -> str:
        """A tensor without bytes for an operand of which only the shape matters."""
        shape = tuple(_size(n) for n in value.shape)
        strides = tuple(_size(n) for n in value.strides)
        name = f"shape_of_{value.name}"
        self.names[name] = torch.empty_strided(
            shape, strides, dtype=getattr(torch, value.dtype), device="meta"
        )
        return name

    def _named(self, constant: Named) -> str:
        if constant.family == "device":
            name = "device_" + re.sub(r"\W", "_", constant.name)
            self.names[name] = torch.device(constant.name)
            return name
        return f"torch.{constant.name}"

    def _constant(self, args: tuple[Arg, ...]) -> str:
        data, shape, dtype, device = args
        assert isinstance(data, tuple)
        assert isinstance(shape, tuple)
        assert isinstance(dtype, Named)
        assert isinstance(device, Named)
        numbers = f"[{', '.join(self._number(n) for n in data)}]"
        extents = f"[{', '.join(str(n) for n in shape)}]"
        options = f"dtype={self._named(dtype)}, device={self._named(device)}"
        return f"torch.tensor({numbers}, {options}).view({extents})"

    @staticmethod
    def _number(number: Arg) -> str:
        plain = not isinstance(number, float) or (number == number and abs(number) != float("inf"))
        return repr(number) if plain else f'float("{number}")'

    def _watch(self, graph: Graph, node: Node, by_version: dict[Access, list[Watch]]) -> None:
        made = [Access(s, 0) for s in graph.created_storages(node)]
        for access in (*made, *node.effects.writes):
            for watch in by_version.get(access, ()):
                name = variable(graph.values[watch.value])
                producer = graph.producer(watch.value)
                if producer is not None and producer > node.id:
                    self.watch_later(by_version, watch, producer, graph)
                    continue
                self.emit(f"watched[{watch.name!r}] = {name}.detach().clone()", node.id)
        for watch in by_version.pop(Access(-1, node.id), ()):
            self.emit(f"watched[{watch.name!r}] = {variable(graph.values[watch.value])}.detach().clone()", node.id)

    @staticmethod
    def watch_later(by_version: dict[Access, list[Watch]], watch: Watch, producer: int, _graph: Graph) -> None:
        """A view of the storage that is made only later: copy it when it is made."""
        by_version.setdefault(Access(-1, producer), []).append(watch)

    # -- loops ------------------------------------------------------------------------------------------------

    def _loop_body(self, node: Node) -> str:
        self.functions += 1
        name = f"body_{self.functions}"
        loop = node.regions[0]
        self.function(name, loop.body, Schedule.program_order(loop.body))
        return name

    def _loop(self, graph: Graph, node: Node, body: str) -> None:
        loop: Loop = node.regions[0]
        trips = _size(loop.trip_count)
        sliced = {s.input: s for s in loop.slices}
        results = [graph.values[v] for v in node.outputs]
        for value, merge in zip(results, loop.merges, strict=True):
            shape = [_size(n) for n in value.shape]
            make = "torch.zeros" if merge.how == "sum" else "torch.empty"
            device = self._named(Named("device", _storage_device(graph, value)))
            options = f"dtype=torch.{value.dtype}, device={device}"
            self.emit(f"{variable(value)} = {make}({shape}, {options})", node.id)
        at = [f"at_{m.output}" for m in loop.merges if m.how == "concat"]
        if at:
            self.emit(f"{' = '.join(at)} = 0", node.id)
        self.emit(f"for trip in range({trips}):", node.id)
        parts = []
        for position, value in enumerate(node.inputs):
            name = variable(graph.values[value])
            if position in sliced:
                axis, step = sliced[position].axis, _size(sliced[position].step)
                length = _size(graph.values[value].shape[axis])
                part = f"min({step}, {length} - trip * {step})"
                name = f"torch.narrow({name}, {axis}, trip * {step}, {part})"
            parts.append(name)
        targets = ", ".join(f"part_{k}" for k in range(len(results)))
        self.emit(f"[{targets}] = {body}([{', '.join(parts)}])", node.id, depth=2)
        for value, merge in zip(results, loop.merges, strict=True):
            name, part = variable(value), f"part_{merge.output}"
            if merge.how == "sum":
                self.emit(f"{name}.add_({part})", node.id, depth=2)
            else:
                length = f"{part}.size({merge.axis})"
                place = f"torch.narrow({name}, {merge.axis}, at_{merge.output}, {length})"
                self.emit(f"{place}.copy_({part})", node.id, depth=2)
                self.emit(f"at_{merge.output} += {length}", node.id, depth=2)
        self.emit(f"del {targets}", node.id, depth=2)


def variable(value: Value) -> str:
    """Name of a value in generated code."""
    return f"{value.name}_" if keyword.iskeyword(value.name) or value.name in {"torch", "args"} else value.name


def resolve_op(op: str, location: str = "") -> Any:
    """The callable of a registry name such as `aten.add.Tensor`.

    Raises:
        LoweringError: torch has no such operation.
    """
    if op == LOOP_OP:
        raise LoweringError("a loop is not a single call")
    namespace, packet, overload = op.split(".", 2)
    try:
        return getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    except AttributeError as error:
        raise LoweringError(
            f"torch {torch.__version__} has no operation {op}",
            where=location or None,
            next_step="plan again with the torch version that runs the plan",
        ) from error


def _is_plain(node: Node) -> bool:
    return node.results is None and len(node.outputs) == 1


def _size(expr: SizeExpr | int) -> int:
    if isinstance(expr, int):
        return expr
    if not expr.is_constant:
        raise LoweringError(f"the size {expr} is not a number", next_step="bind all dimensions before lowering")
    return expr.constant_value()


def _storage_device(graph: Graph, value: Value) -> str:
    assert value.storage is not None
    return graph.storages[value.storage].device


def _device_of(graph: Graph, node: Node) -> str:
    for value in node.outputs:
        storage = graph.values[value].storage
        if storage is not None:
            return graph.storages[storage].device
    return "cpu"
