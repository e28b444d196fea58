"""Graphs of real ATen programs for the tests: each operation runs on tensors while its node is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import torch
from hypothesis import strategies as st

from neaptide.analysis.kinds import state_storages
from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.liveness import compute_liveness
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import VerifyError
from neaptide.ir.builder import GraphBuilder, ValueId
from neaptide.ir.dependencies import predecessors
from neaptide.ir.edits.edit import Edited
from neaptide.ir.effects import effects_of
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Effects, Named, Node, Ref, Source
from neaptide.ir.registry import Call
from neaptide.ir.schedule import Offload, Schedule, StepKind
from neaptide.ir.values import Kind
from neaptide.lower.out_variants import resolve_operation
from neaptide.ops import registry
from neaptide.ops.structural import CONSTANT_OP, host_function
from neaptide.runtime.calls.executor import Executable
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import compile_problem
from neaptide.symbolic.size_expr import SizeExpr
from support.dispatch_modes import TimelineMeter

SEED = 7


class Recorder:
    """Runs operations on tensors at once, in program order, and records the graph: the reference of the tests."""

    def __init__(self) -> None:
        self.builder = GraphBuilder("recorded", registry())
        self.data: dict[int, Any] = {}
        self.before: list[Any] = []
        self.storages: dict[int, int] = {}
        torch.manual_seed(SEED)

    def input(self, data: Any, name: str) -> ValueId:
        value = self._value(data, name)
        self.builder.add_input(value)
        self.before.append((value, data.clone() if isinstance(data, torch.Tensor) else data))
        return value

    def call(self, op: str, *args: Any, line: int = 0, module: str = "", **kwargs: Any) -> Any:
        """Run and record; the result with ids for tensors and numbers. RuntimeError where torch refuses."""
        inputs: list[int] = []
        plain = tuple(self._arg(a, inputs) for a in args)
        named = {k: self._arg(v, inputs) for k, v in sorted(kwargs.items())}
        if op == CONSTANT_OP:
            numbers, shape, dtype, _ = args
            got = torch.tensor(numbers, dtype=getattr(torch, dtype.name)).reshape(shape)
        else:
            function = host_function(op) if op.startswith("host.") else resolve_operation(op)
            got = function(*map(self._real, args), **{k: self._real(v) for k, v in kwargs.items()})
        outputs: list[int] = []
        structure, ids = self._results(got, op, outputs)
        spec = registry().require(op)
        source = Source("/home/user/model.py", line, "y = f(x)", module, "forward") if line else Source()
        draft = Node(
            -1,
            op,
            tuple(inputs),
            tuple(outputs),
            plain,
            tuple(named.items()),
            source=source,
            results=structure,
        )
        effects = effects_of(spec, Call(self.builder, draft))
        draft = replace(draft, effects=Effects(rng=effects.rng))
        self.builder.add_node(draft, effects.reads, effects.writes)
        return ids

    def finish(self, outputs: Sequence[int]) -> Graph:
        self.builder.output(*outputs)
        return self.builder.finish()

    def follow(self, edited: Edited, graph: Graph) -> None:
        """Have the data under the ids of the edited graph; an output may now be the copy of what it was."""
        before = self.data
        self.data = {new: before[old] for new, old in enumerate(edited.value_of) if old >= 0}
        self.data |= {new: before[old] for new, old in zip(edited.graph.outputs, graph.outputs, strict=True)}

    def fresh_inputs(self) -> list[Any]:
        """The inputs as they were, sharing storages as they did."""
        copies: dict[int, torch.UntypedStorage] = {}
        made = []
        for value, data in self.before:
            if not isinstance(data, torch.Tensor):
                made.append(data)
                continue
            original = self.data[value]
            storage = self.builder.values[value].storage
            if storage not in copies:
                copies[storage] = torch.UntypedStorage(original.untyped_storage().nbytes())
            tensor = torch.empty(0, dtype=original.dtype)
            tensor.set_(copies[storage], original.storage_offset(), original.shape, original.stride())
            tensor.copy_(data)
            made.append(tensor)
        return made

    def _arg(self, arg: Any, inputs: list[int]) -> Any:
        if isinstance(arg, ValueId):
            if int(arg) not in inputs:
                inputs.append(int(arg))
            return Ref(inputs.index(int(arg)))
        return tuple(self._arg(a, inputs) for a in arg) if isinstance(arg, list | tuple) else arg

    def _real(self, arg: Any) -> Any:
        if isinstance(arg, ValueId):
            return self.data[arg]
        if isinstance(arg, Named):
            return torch.device(arg.name) if arg.family == "device" else getattr(torch, arg.name)
        return [self._real(a) for a in arg] if isinstance(arg, list | tuple) else arg

    def _results(self, got: Any, op: str, outputs: list[int]) -> Any:
        if got is None:
            return (), None
        if not isinstance(got, list | tuple):
            outputs.append(self._value(got, op.split(".")[1]))
            return None, ValueId(outputs[-1])
        structure: list[Any] = []
        ids: list[Any] = []
        for item in got:
            structure.append(None if item is None else Ref(len(outputs)))
            ids.append(None if item is None else self._results(item, op, outputs)[1])
        plain = len(structure) > 1 and None not in structure
        return None if plain else tuple(structure), ids

    def _value(self, data: Any, name: str) -> ValueId:
        if not isinstance(data, torch.Tensor):
            kind = {bool: "bool", int: "int64", float: "float64"}[type(data)]
            value = self.builder.add_value(name, kind)
        else:
            storage = self.storages.get(data.untyped_storage()._cdata)
            if storage is None:
                nbytes = SizeExpr.const(data.untyped_storage().nbytes())
                storage = self.builder.add_storage(nbytes, "cpu", name=name)
                self.storages[data.untyped_storage()._cdata] = storage
            value = self.builder.add_value(
                name,
                str(data.dtype).removeprefix("torch."),
                tuple(map(SizeExpr.const, data.shape)),
                tuple(map(SizeExpr.const, data.stride())),
                SizeExpr.const(data.storage_offset()),
                storage,
            )
        self.data[value] = data
        return ValueId(value)


def bits(data: Any) -> Any:
    """What must be equal, to the bit."""
    if not isinstance(data, torch.Tensor):
        return data
    return tuple(data.shape), data.contiguous().reshape(-1).view(torch.uint8).tolist()


def check_run(recorder: Recorder, graph: Graph, schedule: Schedule, executable: Executable) -> None:
    """The run gives the recorded bits, and at each operation exactly the predicted bytes are live."""
    inputs = recorder.fresh_inputs()
    tensors = [t for t in inputs if isinstance(t, torch.Tensor)]
    boxed = list(inputs)
    torch.manual_seed(SEED)
    with TimelineMeter(tensors) as meter:
        outputs = executable.run(boxed)
    assert boxed == []
    source = executable.program.source
    assert [bits(o) for o in outputs] == [bits(recorder.data[v]) for v in graph.outputs], source
    after = {v: recorder.data[v] for v, _ in recorder.before}
    assert [bits(t) for t in inputs] == [bits(after[v]) for v in graph.inputs], source

    profile = memory_profile(graph, schedule)
    expected = []
    for step, nbytes in zip(schedule.node_steps(), profile.bytes_at, strict=True):
        node = graph.nodes[step.target]
        spec = registry().require(node.op)
        if node.op.startswith("host."):
            continue
        op = "aten.lift_fresh.default" if node.op == CONSTANT_OP else node.op
        if step.kind is StepKind.RECOMPUTE and spec.replay is not None and node.effects.writes:
            op = spec.replay.op
        expected.append((op, nbytes))
    ran = [(op, nbytes) for op, nbytes in meter.timeline[len(tensors) :] if not op.startswith("neaptide.")]
    assert ran == expected, source
    assert meter.peak_bytes <= profile.peak_bytes, source
    if (pool := executable.program.names.get("host")) is not None:
        assert (pool.peak_bytes, pool.live_bytes) == (profile.peak_host_bytes, 0), source
    assert meter.persistent_bytes == profile.persistent_bytes
    held = {graph.values[v].storage for v in graph.outputs} - set(graph.input_storages()) - {None}
    sizes = [graph.storages[s].nbytes.constant_value() for s in held]
    assert meter.live_bytes == profile.persistent_bytes + sum(sizes), source


# -- random programs


def random_program(draw: st.DrawFn) -> tuple[Recorder, Graph]:
    """A program of up to 30 operations: views, updates in place, norms, lists, numbers, randomness."""
    rows, columns = draw(st.sampled_from([(4, 6), (2, 8), (6, 3)]))
    numbers = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    rec = Recorder()

    def data(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=numbers)

    square = rec.input(data(columns, columns), "weight")
    gain = rec.input(data(columns), "gain")
    shared = data(2, columns)
    mean = rec.input(shared[0], "running_mean")  # both on one storage
    variance = rec.input(shared[1].abs_(), "running_var")
    rate = rec.input(0.5, "rate")
    first = rec.input(data(rows, columns), "x")
    pool = [first, square]
    scalars = [rate]
    others: list[ValueId] = []
    for _ in range(draw(st.integers(1, 30))):
        x = draw(st.sampled_from(pool[-6:] + pool[:2]))
        y = draw(st.sampled_from(pool[-6:] + pool[:2]))
        scalar = draw(st.sampled_from(scalars))
        kind = draw(st.sampled_from(sorted(_MAKERS)))
        try:
            made = _MAKERS[kind](rec, x, y, square, gain, (mean, variance), scalar)
        except (RuntimeError, IndexError):
            continue  # shapes that do not fit, or overlapping operands: nothing was recorded
        for value in made if isinstance(made, list) else [made]:
            if value is None:
                continue
            described = rec.builder.values[value]
            if described.storage is None:
                scalars.append(value)
            else:  # the operations expect matrices
                matrix = len(described.shape) == 2 and described.dtype == "float32"
                (pool if matrix else others).append(value)
    outputs = draw(st.lists(st.sampled_from(pool + scalars + others), max_size=3))
    return rec, rec.finish(outputs)


def _host(rec: Recorder, x: ValueId) -> list[ValueId]:
    total = rec.call("aten.sum.default", x)
    number = rec.call("aten._local_scalar_dense.default", total)
    return [rec.call("host.math_tanh", number), total]


_MAKERS: dict[str, Any] = {
    "mm": lambda r, x, y, w, g, s, n: r.call("aten.mm.default", x, r.call("aten.t.default", w)),
    "addmm": lambda r, x, y, w, g, s, n: r.call("aten.addmm.default", g, x, w, beta=2),
    "relu": lambda r, x, y, w, g, s, n: r.call("aten.relu.default", x),
    "sigmoid": lambda r, x, y, w, g, s, n: r.call("aten.sigmoid.default", x),
    "relu_": lambda r, x, y, w, g, s, n: r.call("aten.relu_.default", x),
    "mul_": lambda r, x, y, w, g, s, n: r.call("aten.mul_.Scalar", x, n),
    "add": lambda r, x, y, w, g, s, n: r.call("aten.add.Tensor", x, y, alpha=0.5),
    "add_": lambda r, x, y, w, g, s, n: r.call("aten.add_.Tensor", x, y),
    "copy_": lambda r, x, y, w, g, s, n: r.call("aten.copy_.default", x, y),
    "batch_norm": lambda r, x, y, w, g, s, n: _batch_norm(r, x, g, s, training=True),
    "eval_norm": lambda r, x, y, w, g, s, n: _batch_norm(r, x, g, s, training=False),
    "layer_norm": lambda r, x, y, w, g, s, n: r.call(
        "aten.native_layer_norm.default", x, [r.builder.values[g].shape[0].constant_value()], g, g, 1e-5
    ),
    "layer_norm_backward": lambda r, x, y, w, g, s, n: _layer_norm_backward(r, x, y, g),
    "split": lambda r, x, y, w, g, s, n: r.call("aten.split.Tensor", x, 3, 1),
    "topk": lambda r, x, y, w, g, s, n: r.call("aten.topk.default", x, 2)[:1],
    "t": lambda r, x, y, w, g, s, n: r.call("aten.t.default", x),
    "slice": lambda r, x, y, w, g, s, n: r.call("aten.slice.Tensor", x, 0, 1, 3),
    "zeros_like": lambda r, x, y, w, g, s, n: r.call("aten.zeros_like.default", x),
    "new_zeros": lambda r, x, y, w, g, s, n: r.call("aten.new_zeros.default", x, [4, 6]),
    "full_like": lambda r, x, y, w, g, s, n: r.call("aten.full_like.default", x, n),
    "fill": lambda r, x, y, w, g, s, n: r.call("aten.fill.Scalar", x, 1.5),
    "host": lambda r, x, y, w, g, s, n: _host(r, x),
    "host_mul": lambda r, x, y, w, g, s, n: r.call("host.mul", n, 2),
    "mul": lambda r, x, y, w, g, s, n: r.call("aten.mul.Scalar", x, n),
    "constant": lambda r, x, y, w, g, s, n: r.call(
        CONSTANT_OP, (1.0, 2.0, 3.0, 4.0), (2, 2), Named("dtype", "float32"), Named("device", "cpu")
    ),
    "foreach_one": lambda r, x, y, w, g, s, n: r.call("aten._foreach_mul.Scalar", [x], 2.0),
    "foreach_two": lambda r, x, y, w, g, s, n: r.call("aten._foreach_add.List", [x, y], [y, x]),
    "foreach_": lambda r, x, y, w, g, s, n: r.call("aten._foreach_mul_.Scalar", [x], 0.5),
    "gt": lambda r, x, y, w, g, s, n: r.call("aten.gt.Scalar", x, n),
    "cast": lambda r, x, y, w, g, s, n: r.call("aten._to_copy.default", x, dtype=Named("dtype", "float64")),
    "masked": lambda r, x, y, w, g, s, n: r.call("aten.where.self", r.call("aten.gt.Tensor", x, y), x, y),
    "dropout": lambda r, x, y, w, g, s, n: r.call("aten.native_dropout.default", x, 0.5, True)[:1],
    "cat": lambda r, x, y, w, g, s, n: r.call("aten.cat.default", [x, y]),
}


def _batch_norm(
    rec: Recorder, x: ValueId, gain: ValueId, statistics: tuple[ValueId, ValueId], *, training: bool
) -> list[ValueId]:
    if rec.builder.values[x].shape[1] != rec.builder.values[gain].shape[0]:
        raise IndexError("other channels")  # ATen notices only when the statistics are half written
    return rec.call("aten.native_batch_norm.default", x, gain, None, *statistics, training, 0.1, 1e-5)


def _layer_norm_backward(rec: Recorder, x: ValueId, grad: ValueId, gain: ValueId) -> list[ValueId | None]:
    width = rec.builder.values[gain].shape[0].constant_value()
    if rec.builder.values[x].shape != rec.builder.values[grad].shape:
        raise RuntimeError("shapes differ")
    _, mean, rstd = rec.call("aten.native_layer_norm.default", x, [width], gain, None, 1e-5)
    mask = [True, False, True]
    return rec.call("aten.native_layer_norm_backward.default", grad, x, [width], mean, rstd, gain, gain, mask)


# -- random schedules


def random_order(draw: st.DrawFn, graph: Graph) -> list[int]:
    """A topological order of the nodes."""
    return shuffled(graph, draw(st.randoms(use_true_random=False)))


def with_recomputation(draw: st.DrawFn, graph: Graph, order: list[int]) -> list[int]:
    """The order with a few repetitions that the rules allow."""
    return with_repetitions(graph, order, draw(st.randoms(use_true_random=False)), tries=8)


def shuffled(graph: Graph, chance: Random) -> list[int]:
    """A topological order of the nodes, by chance."""
    waiting = [set(before) for before in predecessors(graph)]
    followers: list[list[int]] = [[] for _ in waiting]
    for node, before in enumerate(waiting):
        for other in before:
            followers[other].append(node)
    ready = [node for node, before in enumerate(waiting) if not before]
    order: list[int] = []
    while ready:
        node = ready.pop(chance.randrange(len(ready)))
        order.append(node)
        for other in followers[node]:
            waiting[other].discard(node)
            if not waiting[other]:
                ready.append(other)
    return order


def with_repetitions(graph: Graph, order: list[int], chance: Random, *, tries: int) -> list[int]:
    """The order with legal repetitions here and there: single nodes, or a storage's creator and its writers."""
    blocks = [[node.id] for node in graph.nodes]
    for node in graph.nodes:
        for storage in graph.created_storages(node):
            writers = [n.id for n in graph.nodes if any(a.storage == storage for a in n.effects.writes)]
            if writers:
                blocks += [[node.id, *writers]] * 3
    for _ in range(tries if blocks else 0):
        block = chance.choice(blocks)
        at = chance.randint(0, len(order))
        longer = [*order[:at], *block, *order[at:]]
        try:
            check_schedule(graph, Schedule.from_nodes(graph, longer), registry())
        except VerifyError:
            continue
        order = longer
    return order


def with_offloads(graph: Graph, schedule: Schedule, chance: Random, *, tries: int) -> Schedule:
    """The schedule with legal offloads here and there."""
    state = set(state_storages(graph))
    made = [
        i
        for i in compute_liveness(graph, schedule).instances
        if (not i.is_persistent or i.storage in state) and i.end > i.start + 2
    ]
    offloads: list[Offload] = []
    for _ in range(tries if made else 0):
        instance = chance.choice(made)
        places = sorted(chance.randrange(instance.start, instance.end) for _ in range(4))
        offload = Offload(instance.storage, instance.occurrence, *places)
        try:
            check_schedule(graph, schedule.with_offloads([*offloads, offload]), registry())
        except VerifyError:
            continue
        offloads.append(offload)
    return schedule.with_offloads(offloads)


def as_state(graph: Graph) -> Graph:
    """The graph with all that the caller owns as parameters, which may wait on the host."""
    owned = set(graph.input_storages())
    storages = (replace(s, kind=Kind.PARAMETER) if s.id in owned else s for s in graph.storages)
    return replace(graph, storages=tuple(storages))


def all_idle(graph: Graph, sequence: Sequence[int]) -> tuple[Offload, ...]:
    """Stays that have every storage on the host where nothing touches it for two steps."""
    evaluator = Evaluator(compile_problem(graph, registry()), sequence)
    offloads = []
    for storage in range(len(graph.storages)):
        if evaluator.problem.moved_bytes(storage):
            for occurrence, use in enumerate(evaluator.uses(storage)):
                places = [evaluator.places[execution] for execution in dict.fromkeys(use.touched_by)]
                places += [len(sequence)] if use.is_kept else []
                around = [(last, then) for last, then in pairwise(places) if then > last + 2]
                offloads += [
                    Offload(storage, occurrence, last, last, then - 1, then) for last, then in around
                ]
    return tuple(
        sorted(offloads, key=lambda offload: (offload.store_after, offload.storage, offload.occurrence))
    )
