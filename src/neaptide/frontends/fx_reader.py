"""Turns a traced step into a `Graph`: storages, versions and effects as recorded, never guessed from names."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from neaptide.errors import CaptureError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.node_source import SourceMap
from neaptide.frontends.step_trace import InputSlot, Trace
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.effects import CallEffects, effects_of
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Named, Node, Ref, refs
from neaptide.ir.registry import Call, OpRegistry, OpSpec, Trait
from neaptide.ir.values import Kind
from neaptide.ops.structural import CONSTANT_OP, HOST_OPS
from neaptide.symbolic.size_expr import SizeExpr

KIND_OF_ROLE = {
    "parameter": Kind.PARAMETER,
    "buffer": Kind.BUFFER,
    "tensor": Kind.INPUT,
    "gradient": Kind.GRADIENT,
    "optimizer_state": Kind.OPTIMIZER_STATE,
    "rate": Kind.INPUT,
    "batch": Kind.INPUT,
}
MAX_CONSTANT = 1 << 20  # elements; a larger literal tensor is data and belongs in the batch or the state


@dataclass(frozen=True)
class Observation:
    """A storage version to be copied in a verify run: a gradient as it is when `optimizer.step()` begins."""

    name: str
    value: int
    version: int


@dataclass(frozen=True)
class ReadResult:
    """A graph and what the reader learnt on the way.

    Attributes:
        graph: verified.
        observations: gradients at the start of the optimizer.
        unknown_ops: operations without a row in the op table; they are left where they are.
        inputs: meaning of the graph's inputs; gradients that the step drops unread are no inputs.
    """

    graph: Graph
    inputs: tuple[InputSlot, ...]
    observations: tuple[Observation, ...]
    unknown_ops: tuple[str, ...]


def read_trace(trace: Trace, registry: OpRegistry, *, name: str) -> ReadResult:
    """Build the graph of a trace. O(nodes).

    Raises:
        CaptureError: a literal tensor that is too large, or a result of a kind that cannot be carried.
    """
    return _Reader(trace, registry, name).read()


class _Reader:
    def __init__(self, trace: Trace, registry: OpRegistry, name: str) -> None:
        self.trace = trace
        self.registry = registry
        self.builder = GraphBuilder(name)
        self.sources = SourceMap(trace.module.graph)
        self.value_of: dict[torch.fx.Node, Any] = {}  # value id, tuple of value ids (and None), or a constant
        self.storage_of: dict[int, int] = {}
        self.by_geometry: dict[tuple[Any, ...], int] = {}
        self.host_results: dict[tuple[Any, ...], int] = {}
        self.rates: set[torch.fx.Node] = set()
        self.observations: list[Observation] = []
        self.unknown: dict[str, None] = {}
        self.keep_alive: list[torch.Tensor] = []

    def read(self) -> ReadResult:
        live = _live_nodes(self.trace.module.graph, self._has_effects)
        slots = iter(self.trace.inputs)
        kept = {("gradient", name) for name in self.trace.kept_gradients}
        inputs = []
        for node in self.trace.module.graph.nodes:
            if node.op == "placeholder":
                slot = next(slots)
                if slot.role == "gradient" and slot.key not in kept and not live & set(node.users):
                    continue  # the caller lets go of it before the program runs
                inputs.append(slot)
                self._placeholder(node, slot)
            elif node.op == "call_function" and node in live:
                self._call(node)
            elif node.op == "output":
                self._outputs(node)
        graph = _true_storage_sizes(self.builder.finish(), self.registry)
        return ReadResult(graph, tuple(inputs), tuple(self.observations), tuple(self.unknown))

    # -- inputs and outputs -----------------------------------------------------------------------------------

    def _placeholder(self, node: torch.fx.Node, slot: Any) -> None:
        fake = node.meta["val"]
        label = _identifier(slot.name)
        if slot.role == "rate" and fake.dtype == torch.float64 and fake.dim() == 0 and self._only_read_back(node):
            value = self.builder.add_value(label, "float64", (), (), SizeExpr.const(0), None)
            self.rates.add(node)
        else:
            value = self._tensor_value(label, fake, KIND_OF_ROLE[slot.role])
        self.builder.add_input(value)
        self.value_of[node] = value

    @staticmethod
    def _only_read_back(node: torch.fx.Node) -> bool:
        return all(user.target is torch.ops.aten._local_scalar_dense.default for user in node.users)  # noqa: SLF001

    def _outputs(self, node: torch.fx.Node) -> None:
        for item in node.args[0]:  # type: ignore[union-attr]
            value = self.value_of[item] if isinstance(item, torch.fx.Node) else None
            if not isinstance(value, int):
                raise CaptureError(
                    "the step returns a value that is no tensor of the program",
                    why=f"found {item!r}",
                    next_step="return tensors or plain Python constants",
                )
            self.builder.output(value)

    # -- nodes ------------------------------------------------------------------------------------------------

    def _call(self, node: torch.fx.Node) -> None:
        target = node.target
        if target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
            self.value_of[node] = self.value_of[node.args[0]][node.args[1]]
            return
        if isinstance(target, torch._ops.OpOverload):  # noqa: SLF001
            name = str(target)
            if name.startswith("profiler."):
                return
            if target in _ALIASES:
                self._alias(node)
                return
            if node.args and isinstance(node.args[0], torch.fx.Node) and node.args[0] in self.rates:
                self.value_of[node] = self.value_of[node.args[0]]
                return
            if self._literal(node):
                return
            self._operation(node, name, target)
            return
        host = HOST_OPS.get(_qualified(target))
        if host is None:
            raise CaptureError(
                f"the step uses {_qualified(target)}, which is no tensor operation",
                where=self.sources.of(node).location or None,
                why="neaptide has no meaning for it",
            )
        self._host(node, host)

    def _alias(self, node: torch.fx.Node) -> None:
        source = node.args[0]
        assert isinstance(source, torch.fx.Node)
        if source.op == "get_attr":
            self._literal_from(node, source)
            return
        value = self.value_of[source]
        self.value_of[node] = value
        observed = (node.meta.get("custom") or {}).get("observe")
        if observed is not None:
            storage = self.builder.values[value].storage
            assert storage is not None
            self.observations.append(Observation(observed, value, self.builder.current_version(storage)))

    def _literal(self, node: torch.fx.Node) -> bool:
        """A copy of a literal tensor (`torch.tensor(0.0)` inside the step) becomes a constant of the graph."""
        if node.target is not torch.ops.aten.lift_fresh_copy.default:
            return False
        source = node.args[0]
        if not (isinstance(source, torch.fx.Node) and source.op == "get_attr"):
            return False
        self._literal_from(node, source)
        return True

    def _literal_from(self, node: torch.fx.Node, source: torch.fx.Node) -> None:
        tensor = getattr(self.trace.module, str(source.target))
        if private.is_fake(tensor):
            tensor = tensor.constant  # a literal keeps its numbers beside the fake
        if tensor is None or tensor.numel() > MAX_CONSTANT:
            raise CaptureError(
                "the step holds a literal tensor that cannot be carried",
                where=self.sources.of(node).location or None,
                why="its numbers are unknown" if tensor is None else f"it has {tensor.numel()} elements",
                next_step="make it a buffer of the module or pass it with the batch",
            )
        data = tuple(tensor.detach().reshape(-1).tolist())
        args: tuple[Arg, ...] = (data, tuple(tensor.shape), Named("dtype", _dtype(tensor.dtype)))
        args = (*args, Named("device", str(node.meta["val"].device)))
        value = self._tensor_value(node.name, node.meta["val"], Kind.TEMPORARY)
        self.builder.add_node(CONSTANT_OP, (), (value,), args, (), reads=(), writes=(), source=self.sources.of(node))
        self.value_of[node] = value

    def _host(self, node: torch.fx.Node, op: str) -> None:
        inputs: list[int] = []
        args = tuple(self._argument(a, inputs) for a in node.args)
        key = (op, tuple(inputs), args)
        if key not in self.host_results:
            value = self.builder.add_value(
                node.name, _host_dtype(node.meta.get("val")), (), (), SizeExpr.const(0), None
            )
            self.builder.add_node(
                op, tuple(inputs), (value,), args, (), reads=(), writes=(), source=self.sources.of(node)
            )
            self.host_results[key] = value
        self.value_of[node] = self.host_results[key]

    def _operation(self, node: torch.fx.Node, name: str, target: Any) -> None:
        spec = self.registry.find(name)
        fake = node.meta.get("val")
        if spec is not None and spec.is_a(Trait.VIEW) and isinstance(fake, torch.Tensor):
            known = self.by_geometry.get(self._geometry(fake))
            if known is not None:
                self.value_of[node] = known
                return
        lists = _tensor_list_length(node)
        if lists > 1 and _is_per_tensor(name):
            self._split_per_tensor(node, name, target, spec, lists)
            return
        inputs: list[int] = []
        args = tuple(self._argument(a, inputs) for a in node.args)
        kwargs = tuple(sorted((k, self._argument(v, inputs)) for k, v in node.kwargs.items()))
        self.value_of[node] = self._emit(node, name, target, spec, inputs, args, kwargs, fake)

    def _emit(
        self,
        node: torch.fx.Node,
        name: str,
        target: Any,
        spec: OpSpec | None,
        inputs: list[int],
        args: tuple[Arg, ...],
        kwargs: tuple[tuple[str, Arg], ...],
        fake: Any,
    ) -> Any:
        outputs: list[int] = []
        structure, result = self._results(node.name, fake, outputs)
        call = Call(self.builder, Node(-1, name, tuple(inputs), tuple(outputs), args, kwargs))
        storages = {s for v in inputs if (s := self.builder.values[v].storage) is not None}
        if spec is None:
            self.unknown[name] = None
            effects = CallEffects(tuple(sorted(storages)), _schema_writes(target, call), None, host=True)
        else:
            effects = effects_of(spec, call)
            made = {self.builder.values[v].storage for v in outputs}
            if spec.is_a(Trait.VIEW) and not made & storages:  # a reshape that had to copy
                effects = replace(effects, reads=tuple(sorted(storages)))
        self.builder.add_node(
            name,
            tuple(inputs),
            tuple(outputs),
            args,
            kwargs,
            reads=effects.reads,
            writes=effects.writes,
            rng=effects.rng,
            # Reading a number back is a pure read of data; only an op nobody knows is kept in its place.
            host=spec is None,
            source=self.sources.of(node),
            results=structure,
        )
        return result

    def _split_per_tensor(
        self, node: torch.fx.Node, name: str, target: Any, spec: OpSpec | None, length: int
    ) -> None:
        """One node for each tensor of a foreach or fused op: a single op would keep every gradient alive."""
        collected = []
        fake = node.meta.get("val")
        for position in range(length):
            inputs: list[int] = []

            def pick(arg: Any, at: int = position) -> Any:
                return [arg[at]] if isinstance(arg, (list, tuple)) and len(arg) == length else arg

            args = tuple(self._argument(pick(a), inputs) for a in node.args)
            kwargs = tuple(sorted((k, self._argument(pick(v), inputs)) for k, v in node.kwargs.items()))
            part = [fake[position]] if isinstance(fake, (list, tuple)) and len(fake) == length else None
            made = self._emit(node, name, target, spec, inputs, args, kwargs, part)
            collected.append(made[0] if made else None)
        self.value_of[node] = tuple(collected)

    # -- values -----------------------------------------------------------------------------------------------

    def _results(self, name: str, fake: Any, outputs: list[int]) -> tuple[Arg, Any]:
        """Makes values for what an op returns; gives their structure and the ids in the same structure."""
        if isinstance(fake, torch.Tensor):
            outputs.append(self._tensor_value(name, fake, Kind.TEMPORARY))
            return None, outputs[-1]
        if isinstance(fake, (torch.SymFloat, torch.SymInt, torch.SymBool, float, int)):
            outputs.append(self.builder.add_value(name, _host_dtype(fake), (), (), SizeExpr.const(0), None))
            return None, outputs[-1]
        if fake is None:
            return (), None
        structure: list[Arg] = []
        ids: list[Any] = []
        for position, item in enumerate(fake):
            if item is None:
                structure.append(None)
                ids.append(None)
                continue
            structure.append(Ref(len(outputs)))
            _, made = self._results(f"{name}_{position}", item, outputs)
            ids.append(made)
        plain = len(structure) > 1 and all(isinstance(s, Ref) for s in structure)
        return (None if plain else tuple(structure)), tuple(ids)

    def _tensor_value(self, name: str, fake: torch.Tensor, kind: Kind) -> int:
        self.keep_alive.append(fake)
        key = private.storage_key(fake)
        storage = self.storage_of.get(key)
        if storage is None:
            nbytes = SizeExpr.const(int(fake.untyped_storage().nbytes()))
            storage = self.builder.add_storage(nbytes, str(fake.device), kind, name)
            self.storage_of[key] = storage
        value = self.builder.add_value(
            name,
            _dtype(fake.dtype),
            tuple(SizeExpr.const(int(n)) for n in fake.shape),
            tuple(SizeExpr.const(int(n)) for n in fake.stride()),
            SizeExpr.const(int(fake.storage_offset())),
            storage,
        )
        self.by_geometry.setdefault(self._geometry(fake), value)
        return value

    @staticmethod
    def _geometry(fake: torch.Tensor) -> tuple[Any, ...]:
        shape, strides = tuple(fake.shape), tuple(fake.stride())
        flags = (fake.is_conj(), fake.is_neg())
        return private.storage_key(fake), fake.dtype, shape, strides, int(fake.storage_offset()), flags

    def _argument(self, arg: Any, inputs: list[int]) -> Arg:
        if isinstance(arg, torch.fx.Node):
            value = self.value_of[arg]
            if value is None:
                return None
            if isinstance(value, tuple):
                return tuple(self._slot(v, inputs) for v in value)
            return self._slot(value, inputs)
        if isinstance(arg, (list, tuple)):
            return tuple(self._argument(a, inputs) for a in arg)
        if isinstance(arg, torch.dtype):
            return Named("dtype", _dtype(arg))
        if isinstance(arg, torch.device):
            return Named("device", str(arg))
        if isinstance(arg, torch.layout):
            return Named("layout", str(arg).removeprefix("torch."))
        if isinstance(arg, torch.memory_format):
            return Named("memory_format", str(arg).removeprefix("torch."))
        if arg is None or isinstance(arg, (bool, int, float, str)):
            return arg
        raise CaptureError(
            f"an operation of the step takes {arg!r} ({type(arg).__name__})",
            why="a program can carry tensors, numbers, strings, types and devices only",
        )

    @staticmethod
    def _slot(value: int | None, inputs: list[int]) -> Arg:
        if value is None:
            return None
        if value not in inputs:
            inputs.append(value)
        return Ref(inputs.index(value))

    # -- effects ----------------------------------------------------------------------------------------------

    def _has_effects(self, node: torch.fx.Node) -> bool:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload):  # noqa: SLF001
            return False
        if (node.meta.get("custom") or {}).get("observe"):
            return True
        name = str(target)
        if name.startswith("profiler."):
            return False
        spec = self.registry.find(name)
        if spec is None:
            return True
        return bool(spec.writes) or spec.writes_if is not None or spec.rng


_ALIASES = frozenset(
    {torch.ops.aten.detach.default, torch.ops.aten.alias.default, torch.ops.aten.lift_fresh.default}
)


def _live_nodes(graph: torch.fx.Graph, has_effects: Callable[[torch.fx.Node], bool]) -> set[torch.fx.Node]:
    """Nodes that an output or an effect needs."""
    live: set[torch.fx.Node] = set()
    stack = [n for n in graph.nodes if n.op == "output" or (n.op == "call_function" and has_effects(n))]
    while stack:
        node = stack.pop()
        if node not in live:
            live.add(node)
            stack.extend(node.all_input_nodes)
    return live


def _true_storage_sizes(graph: Graph, registry: OpRegistry) -> Graph:
    """Sizes that fake tensors get wrong, from the op table (a mean loss that keeps its unreduced bytes)."""
    corrected: dict[int, SizeExpr] = {}
    for node in graph.nodes:
        spec = registry.find(node.op)
        if spec is None or spec.storage_bytes is None:
            continue
        for position, nbytes in spec.storage_bytes(Call(graph, node)).items():
            storage = graph.values[node.outputs[position]].storage
            if storage is not None:
                corrected[storage] = nbytes
    if not corrected:
        return graph
    storages = tuple(replace(s, nbytes=corrected.get(s.id, s.nbytes)) for s in graph.storages)
    return replace(graph, storages=storages)


def _schema_writes(target: Any, call: Call) -> tuple[int, ...]:
    """Storages that an op without a row says it overwrites."""
    written: dict[int, None] = {}
    for position, argument in enumerate(target._schema.arguments):  # noqa: SLF001
        if argument.alias_info is not None and argument.alias_info.is_write:
            for ref in refs(call.arg(position, argument.name)):
                storage = call.graph.values[call.node.inputs[ref.slot]].storage
                if storage is not None:
                    written[storage] = None
    return tuple(written)


def _is_per_tensor(name: str) -> bool:
    return re.match(r"aten\._(foreach|fused)_", name) is not None


def _tensor_list_length(node: torch.fx.Node) -> int:
    lengths = {
        len(a)
        for a in (*node.args, *node.kwargs.values())
        if isinstance(a, (list, tuple)) and a and all(isinstance(i, torch.fx.Node) for i in a)
    }
    return lengths.pop() if len(lengths) == 1 else 0


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _host_dtype(value: Any) -> str:
    if isinstance(value, (torch.SymInt, int)) and not isinstance(value, bool):
        return "int64"
    if isinstance(value, (torch.SymBool, bool)):
        return "bool"
    return "float64"


def _qualified(target: Any) -> str:
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"


def _identifier(text: str) -> str:
    name = re.sub(r"\W", "_", text)
    return f"_{name}" if not name or name[0].isdigit() else name
