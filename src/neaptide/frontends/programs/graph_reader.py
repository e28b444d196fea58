"""Turns a traced step into a program with its `Graph`: storages, versions and effects as recorded, never guessed from names."""

from __future__ import annotations

import operator
from bisect import bisect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from neaptide.errors import CaptureError
from neaptide.frontends.dispatch.recorder import no_operation
from neaptide.frontends.kernels.functional_noise import with_functional_noise
from neaptide.frontends.kernels.repeated_runs import without_repetitions
from neaptide.frontends.programs.captured import CapturedProgram, Observation
from neaptide.frontends.programs.list_parts import list_parts
from neaptide.frontends.recording.record_queries import (
    SourceMap,
    foreach_length,
    is_check,
    live_records,
    schema_writes,
    true_storage_sizes,
)
from neaptide.frontends.recording.recording import CheckpointRun, Record, TensorFacts
from neaptide.frontends.recording.trace_values import Values, dtype_of, host_dtype_of, identifier, qualified
from neaptide.frontends.source.trace_errors import unknown_shape
from neaptide.frontends.state.step_slots import InputSlot
from neaptide.frontends.state.traced import Trace
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.edits.edit import Edited
from neaptide.ir.effects import CallEffects, effects_of
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Effects, Named, Node
from neaptide.ir.registry import Call, OpRegistry, OpSpec, Trait
from neaptide.ir.values import Kind
from neaptide.ops import registry
from neaptide.ops.declared import is_declared
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
MAX_CONSTANT = 10_000  # elements; a larger literal tensor is data and belongs in the batch or the state


def read_trace(trace: Trace, rewrites: Iterable[str], *, name: str) -> CapturedProgram:
    """Build the program of a trace; `rewrites` says in words what was changed in it. O(nodes)."""
    return _Reader(trace, name).read(rewrites)


class ReadRecording(NamedTuple):
    """A graph with one node for each operation, by record the id of its value, a tuple of them, or None."""

    graph: Graph
    value_of: Mapping[Record, Any]
    unknown_ops: tuple[str, ...]  # without a row


def read_recording(trace: Trace, rows: OpRegistry, *, name: str) -> ReadRecording:
    """The graph of a trace exactly as it was recorded, with the effects that the rows of `rows` tell. O(nodes)."""
    reader = _Reader(trace, name, rows)
    reader._read_records()  # noqa: SLF001 - of this module
    graph = true_storage_sizes(reader.builder.finish(), rows)
    return ReadRecording(graph, reader.values.of, tuple(reader.unknown))


class _Reader:
    def __init__(self, trace: Trace, name: str, rows: OpRegistry | None = None) -> None:
        self.trace = trace
        self.registry = registry() if rows is None else rows
        self.builder = GraphBuilder(name)
        self.sources = SourceMap(trace.recording.records)
        self.values = Values(self.builder, trace.sizes)
        for dim in trace.sizes.dims:
            self.builder.dim(dim.name, dim.low, dim.high)
        for relation in trace.sizes.relations:
            self.builder.relation(relation.left, relation.right)
        self.host_results: dict[tuple[Any, ...], int] = {}
        self.users = trace.recording.users()
        self.rates: set[Record] = set()
        self.observations: list[Observation] = []
        self.unknown: dict[str, None] = {}
        self.runs: dict[int, tuple[CheckpointRun, ...]] = {}

    def read(self, rewrites: Iterable[str]) -> CapturedProgram:
        inputs = self._read_records()
        graph = true_storage_sizes(self.builder.finish(), self.registry)
        program = CapturedProgram(
            **self.trace.boundary() | {"inputs": tuple(inputs)},
            graph=graph,
            observations=tuple(self.observations),
            unknown_ops=tuple(self.unknown),
        )
        notes: Iterable[str] = ()
        if self.runs and self.trace.undoes_checkpoints:
            program = replace(program, checkpoints=self._whole_calls(graph))
            notes = _about_undone(program)
        elif self.runs:
            program, notes = self._without_repetitions(program)
        edited = with_functional_noise(program.graph)
        program = program if edited is None else _after(program, edited)
        return replace(program, rewrites=(*rewrites, *notes, *self.trace.sizes.notes))

    def _read_records(self) -> list[InputSlot]:
        """Reads record by record; gives the inputs that are left."""
        records = self.trace.recording.records
        recomputes = any(record.is_recomputed for record in records)
        # What only the backward asks for is dead in the first run, and is looked for there by the second.
        live = live_records(records, lambda r: self._has_effects(r) or (recomputes and bool(r.runs)))
        slots = iter(self.trace.inputs)
        kept = {("gradient", name) for name in self.trace.kept_gradients}
        inputs = []
        for record in records:
            if record.kind == "input":
                slot = next(slots)
                is_dropped = slot.role == "gradient" and slot.key not in kept
                if is_dropped and live.isdisjoint(self.users.get(record, ())):
                    continue  # the caller lets go of it before the program runs
                inputs.append(slot)
                self._input(record, slot)
            elif record.kind == "call" and record in live:
                self.values.line = record.line
                self._call(record)
            elif record.kind == "output":
                self._outputs(record)
        return inputs

    # -- checkpoints of the user's ----------------------------------------------------------------------------

    def _whole_calls(self, graph: Graph) -> tuple[tuple[int, ...], ...]:
        """The calls where checkpointed functions ran once: the backward would repeat them whole."""
        calls: dict[CheckpointRun, list[int]] = {}
        for node, around in self.runs.items():
            if graph.nodes[node].source.phase == "forward":
                calls.setdefault(around[0], []).append(node)
        return tuple(map(tuple, calls.values()))

    def _without_repetitions(self, program: CapturedProgram) -> tuple[CapturedProgram, list[str]]:
        """The program with what checkpointed functions compute twice computed once, and what is to be said of it."""
        graph, runs = program.graph, self.runs
        seen = {storage for o in self.observations if (storage := graph.values[o.value].storage) is not None}
        undone = without_repetitions(graph, runs, seen)
        calls: dict[CheckpointRun, set[int]] = {}
        left = sorted(undone.edited.node_of)
        for number, original in undone.repeated.items():  # ascending
            around = runs.get(original, ())
            if around and around[0].first is None:
                behind = left[bisect(left, number) :][:1]
                calls.setdefault(around[0], set(behind)).add(original)
        checkpoints = tuple(sorted(tuple(sorted(nodes)) for nodes in calls.values()))
        made = _after(replace(program, checkpoints=checkpoints), undone.edited)
        notes = []
        if made.checkpoints:
            told = "is undone: what is recomputed is planned anew"
            notes.append(f"activation checkpointing of {len(made.checkpoints)} calls {told}")
        if undone.stayed:
            first = graph.nodes[undone.stayed[0]]
            notes.append(
                f"{len(undone.stayed)} operations of the recomputation stay, because they write state or depend on what "
                f"does; the first is {first.op} at {first.source.location}"
            )
        return made, notes

    # -- inputs and outputs -----------------------------------------------------------------------------------

    def _input(self, record: Record, slot: InputSlot) -> None:
        tensor = record.result
        label = identifier(slot.name)
        if (
            slot.role == "rate"
            and tensor.dtype in (torch.float64, torch.int64)
            and tensor.shape == ()
            and self._is_only_read_back(record)
        ):
            value = self.builder.add_value(label, dtype_of(tensor.dtype), (), (), SizeExpr.const(0), None)
            self.rates.add(record)
        else:
            value = self.values.tensor(label, tensor, KIND_OF_ROLE[slot.role])
        self.builder.add_input(value)
        self.values.of[record] = value

    def _is_only_read_back(self, record: Record) -> bool:
        read_back = torch.ops.aten._local_scalar_dense.default  # noqa: SLF001
        return all(user.target is read_back for user in self.users.get(record, ()))

    def _outputs(self, record: Record) -> None:
        for item, slot in zip(record.args, self.trace.outputs, strict=True):
            value = self.values.of[item] if isinstance(item, Record) else self._size(item, slot.name)
            if not isinstance(value, int):
                raise CaptureError(
                    "the step returns a value that is no tensor of the program",
                    why=f"found {item!r}",
                    next_step="return tensors or plain Python constants",
                )
            self.builder.output(value)
            self._state_kind(value, slot.role)

    def _size(self, item: Any, name: str) -> int | None:
        """The value of a size that the step hands back; None for anything else."""
        if not isinstance(item, SizeExpr):
            return None
        value = self.builder.add_value(identifier(name), "int64", (), (), SizeExpr.const(0), None)
        size = self.values.argument(item, [])
        self.builder.add_node(Node(-1, HOST_OPS["builtins.int"], (), (value,), (size,)))
        return value

    def _state_kind(self, value: int, role: str) -> None:
        """A gradient or optimizer state that the step leaves behind is one, whatever made it."""
        storage = self.builder.values[value].storage
        if storage is not None and role in KIND_OF_ROLE:
            known = self.builder.storages[storage]
            if known.kind is Kind.TEMPORARY:
                self.builder.storages[storage] = replace(known, kind=KIND_OF_ROLE[role])

    # -- calls ------------------------------------------------------------------------------------------------

    def _call(self, record: Record) -> None:
        target = record.target
        if target is operator.getitem and isinstance(record.args[0], Record):
            self.values.of[record] = self.values.of[record.args[0]][record.args[1]]
            return
        if isinstance(target, torch._ops.OpOverload):  # noqa: SLF001
            name = str(target)
            if name.startswith("profiler."):
                return
            if target in _ALIASES:
                self._alias(record)
                return
            if record.args and isinstance(record.args[0], Record) and record.args[0] in self.rates:
                self.values.of[record] = self.values.of[record.args[0]]
                return
            if self._literal(record):
                return
            self._operation(record, name)
            return
        host = HOST_OPS.get(qualified(target))
        if host is None:
            raise no_operation(target, self.sources.of(record).location or None)
        self._host(record, host)

    def _alias(self, record: Record) -> None:
        source = record.args[0]
        assert isinstance(source, Record)
        if source.kind == "literal":
            self._literal_from(record, source)
            return
        value = self.values.of[source]
        self.values.of[record] = value
        observed = record.observed
        if observed is not None:
            storage = self.builder.values[value].storage
            assert storage is not None
            self.observations.append(Observation(observed, value, self.builder.current_version(storage)))

    def _literal(self, record: Record) -> bool:
        """A copy of a literal tensor (`torch.tensor(0.0)` inside the step) becomes a constant of the graph."""
        if record.target is not torch.ops.aten.lift_fresh_copy.default:
            return False
        source = record.args[0]
        if not (isinstance(source, Record) and source.kind == "literal"):
            return False
        self._literal_from(record, source)
        return True

    def _literal_from(self, record: Record, source: Record) -> None:
        tensor = source.literal()
        if tensor is None or tensor.numel() > MAX_CONSTANT:
            raise CaptureError(
                "the step holds a literal tensor that cannot be carried",
                where=self.sources.of(record).location or None,
                why="its numbers are unknown" if tensor is None else f"it has {tensor.numel()} elements",
                next_step="make it a buffer of the module or pass it with the batch",
            )
        data = tuple(tensor.detach().reshape(-1).tolist())
        args: tuple[Arg, ...] = (data, tuple(tensor.shape), Named("dtype", dtype_of(tensor.dtype)))
        args = (*args, Named("device", str(record.result.device)))
        value = self.values.tensor(record.name, record.result, Kind.TEMPORARY)
        self.builder.add_node(Node(-1, CONSTANT_OP, (), (value,), args, source=self.sources.of(record)))
        self.values.of[record] = value

    def _host(self, record: Record, op: str) -> None:
        inputs: list[int] = []
        args = tuple(self.values.argument(a, inputs) for a in record.args)
        key = (op, tuple(inputs), args)
        if key not in self.host_results:
            value = self.builder.add_value(
                record.name, host_dtype_of(record.result), (), (), SizeExpr.const(0), None
            )
            self.builder.add_node(Node(-1, op, tuple(inputs), (value,), args, source=self.sources.of(record)))
            self.host_results[key] = value
        self.values.of[record] = self.host_results[key]

    def _operation(self, record: Record, name: str) -> None:
        frozen = [taken for taken in record.operands() if taken.kind == "literal"]
        if frozen:
            raise CaptureError(
                f"the step hands {type(frozen[0].args[0]).__name__} to {name}",
                where=self.sources.of(record).location or None,
                why="an object (an explicit random generator, say) would be frozen into the program",
                next_step="use the default generator, or take it outside the step",
            )
        spec = self.registry.find(name)
        result = record.result
        if spec is not None and spec.is_a(Trait.VIEW) and isinstance(result, TensorFacts):
            known = self.values.known(result)
            if known is not None:
                self.values.of[record] = known
                return
        length = foreach_length(record)
        if length > 1:
            self.values.of[record] = self._in_parts(record, spec, length)
            return
        self._refuse_odd_results(record)
        self.values.of[record] = self._emit(record, spec, record.args, record.kwargs, result)

    def _emit(
        self,
        record: Record,
        spec: OpSpec | None,
        taken: tuple[Any, ...],
        named: Mapping[str, Any],
        result: Any,
    ) -> Any:
        """Add a node of a record's operation, with these arguments; gives the ids of its results in their structure."""
        name, target = str(record.target), record.target
        inputs: list[int] = []
        args = tuple(self.values.argument(a, inputs) for a in taken)
        kwargs = tuple(sorted((k, self.values.argument(v, inputs)) for k, v in named.items()))
        outputs: list[int] = []
        structure, made = self.values.results(record.name, result, outputs)
        draft = Node(
            -1,
            name,
            tuple(inputs),
            tuple(outputs),
            args,
            kwargs,
            source=self.sources.of(record),
            results=structure,
        )
        call = Call(self.builder, draft)
        storages = {s for v in inputs if (s := self.builder.values[v].storage) is not None}
        if spec is None:
            self.unknown[name] = None
            effects = CallEffects(tuple(sorted(storages)), schema_writes(target, call), None, host=True)
        else:
            if is_declared(name) and schema_writes(target, call):
                raise CaptureError(
                    f"{name} was declared pure, but its schema says that it overwrites an argument",
                    where=self.sources.of(record).location or None,
                    next_step="leave it undeclared: it then stays where it is",
                )
            effects = effects_of(spec, call)
            seen = {self.builder.values[v].storage for v in outputs}
            if spec.is_a(Trait.VIEW) and not seen & storages:  # a reshape that had to copy
                effects = replace(effects, reads=tuple(sorted(storages)))
        # Reading a number back is a pure read of data; only an op nobody knows is kept in its place.
        chains = Effects(rng=effects.rng, host=spec is None)
        node = self.builder.add_node(replace(draft, effects=chains), effects.reads, effects.writes)
        if record.runs:
            self.runs[node] = record.runs
        return made

    def _refuse_odd_results(self, record: Record) -> None:
        for item in record.result if isinstance(record.result, tuple) else (record.result,):
            if not isinstance(item, TensorFacts):
                continue
            if item.layout is not torch.strided:
                raise CaptureError(
                    f"the step makes a tensor with layout {item.layout}",
                    where=self.sources.of(record).location or None,
                    why=f"{record.target} gives it, and its bytes cannot be planned",
                    next_step="keep it dense (sparse=False)",
                )
            if any(isinstance(n, torch.SymInt) for n in item.shape):
                raise unknown_shape(self.sources.of(record).location or None, str(record.target))

    def _in_parts(self, record: Record, spec: OpSpec | None, length: int) -> tuple[Any, ...]:
        """A node for each part of the lists of a foreach or fused op: a single op would keep every gradient alive."""

        def part(item: Any, at: range) -> Any:
            return item[at.start : at.stop] if isinstance(item, tuple) and len(item) == length else item

        collected: list[Any] = []
        for at in list_parts(record, length):
            taken = tuple(part(a, at) for a in record.args)
            named = {name: part(a, at) for name, a in record.kwargs.items()}
            is_list = isinstance(record.result, tuple) and len(record.result) == length
            made = self._emit(record, spec, taken, named, part(record.result, at) if is_list else None)
            collected.extend(made or [None] * len(at))
        return tuple(collected)

    # -- effects ----------------------------------------------------------------------------------------------

    def _has_effects(self, record: Record) -> bool:
        target = record.target
        if not isinstance(target, torch._ops.OpOverload):  # noqa: SLF001
            return False
        if record.observed is not None:
            return True
        name = str(target)
        if name.startswith("profiler."):
            return False
        spec = self.registry.find(name)
        if spec is None:
            return True
        return bool(spec.writes) or spec.writes_if is not None or spec.rng or (spec.host and is_check(target))


_ALIASES = frozenset(
    {torch.ops.aten.detach.default, torch.ops.aten.alias.default, torch.ops.aten.lift_fresh.default}
)


def _after(program: CapturedProgram, edited: Edited) -> CapturedProgram:
    """The same program after a change of its graph."""
    node = {old: new for new, old in enumerate(edited.node_of)}
    value = {old: new for new, old in enumerate(edited.value_of)}
    calls = (tuple(node[n] for n in nodes if n in node) for nodes in program.checkpoints)
    return replace(
        program,
        graph=edited.graph,
        observations=tuple(replace(seen, value=value[seen.value]) for seen in program.observations),
        checkpoints=tuple(filter(None, calls)),
    )


def _about_undone(program: CapturedProgram) -> list[str]:
    """What is to be said of a program whose checkpointed calls run once."""
    count, graph = len(program.checkpoints), program.graph
    if not count:
        return []
    owned = set(graph.input_storages())
    nodes = [graph.nodes[number] for numbers in program.checkpoints for number in numbers]
    writers = [n for n in nodes if any(access.storage in owned for access in n.effects.writes)]
    told = f"; what {writers[0].op} writes at {writers[0].source.location} then differs" if writers else ""
    return [
        f'checkpoints="undo": {count} checkpointed calls run once, as plain code, and not twice as in eager{told}'
    ]
