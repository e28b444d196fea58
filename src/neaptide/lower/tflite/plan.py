"""The order and the offsets of a `.tflite` model for TensorFlow Lite Micro, never above what the file needs as it is.

Tensors are placed for the times that the interpreter counts, a view on its operand. What the interpreter will need for the new
file is then worked out as its own planner does, scratch included: where that is no smaller, the file stays as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from neaptide.errors import UnsupportedModel
from neaptide.frontends.tflite.body_bytes import aligned, lifetimes
from neaptide.frontends.tflite.model import TfliteModel, is_placed
from neaptide.frontends.tflite.to_graph import TfliteGraph
from neaptide.layout.lower_arena import ArenaOrder, lower_arena
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.lower.tflite.interpreter_arena import ANYWHERE, arena_requests, greedy_arena
from neaptide.ops.tflite import ALIGNMENT
from neaptide.outcome import Limits
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.portfolio import best_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.sharing import takeovers

_MOST_BYTES: Final = 1 << 31
_ALWAYS: Final = 1024
_OF_TENSOR: Final = 24
_OF_OPERATOR: Final = 64 + 112
_OF_CHANNEL: Final = 8
_BY_CHANNEL: Final = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"})


@dataclass(frozen=True, slots=True)
class TflmPlan:
    """What is written, and what it needs.

    Attributes:
        order: operators of the file, in the order in which they shall run.
        offsets: by tensor, its offset or `ANYWHERE`; None where the file stays as it is.
        baseline_arena_bytes: what the interpreter needs for tensors and scratch of the file as it is.
        arena_bytes: the same of what is written.
        baseline_peak_bytes: most bytes at once in the file's order, views counted once.
        peak_bytes: the same in `order`.
        lower_bound_bytes: no order of these operators has a lower peak, so that no arena is smaller.
        variable_bytes: of tensors that keep their data, which the interpreter places beside these.
        interpreter_bytes: an estimate, from above, of the interpreter's own data in the arena, on 64 bits.
    """

    order: tuple[int, ...]
    offsets: tuple[int, ...] | None
    baseline_arena_bytes: int
    arena_bytes: int
    baseline_peak_bytes: int
    peak_bytes: int
    lower_bound_bytes: int
    variable_bytes: int
    interpreter_bytes: int

    @property
    def total_bytes(self) -> int:
        """What to declare for the arena."""
        return self.arena_bytes + self.variable_bytes + self.interpreter_bytes


def plan_tflm(
    source: TfliteGraph,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> TflmPlan:
    """The plan of a model. The order is searched first, then the layout, and orders near it that pack better.

    Of a model with several subgraphs the first is planned; the others run inside of its operators and stay as they are.

    Raises:
        UnsupportedModel: the model needs more bytes than the interpreter can count, or nests too many calls.
    """
    limits = limits or Limits()
    problem, count = source.problem(), len(source.graph.nodes)
    baseline = greedy_arena(arena_requests(source, range(count), source.model.offsets))
    progress(f"ordering {count} operators")
    found = best_order(problem, limits, interrupt)
    result = found.require()
    progress("placing their tensors")
    made = lower_arena(
        result.order,
        partial(arena_buffers, source, problem),
        problem.is_order,
        limits.after(found.seconds),
        interrupt,
    ).require()
    if (made.layout.arena_bytes or 0) >= _MOST_BYTES:
        raise UnsupportedModel(
            f"{source.model.name or 'the model'} needs an arena of {made.layout.arena_bytes} bytes",
            why=f"TensorFlow Lite Micro counts offsets below {_MOST_BYTES}",
            next_step="plan a smaller model",
        )
    arena, offsets = min(
        (greedy_arena(arena_requests(source, made.order, some)), some)
        for some in _choices(source, _offsets(source, problem, made))
    )
    is_smaller = arena < baseline
    return TflmPlan(
        made.order if is_smaller else tuple(range(count)),
        offsets if is_smaller else None,
        baseline,
        min(arena, baseline),
        evaluate_order(problem, range(count)).peak_bytes,
        result.peak_bytes,
        result.order_lower_bound_bytes,
        sum(aligned(t.nbytes) for graph in source.model.subgraphs for t in graph.tensors if t.is_variable),
        interpreter_bytes(source.model),
    )


def interpreter_bytes(model: TfliteModel) -> int:
    """About what the interpreter keeps for itself in the arena: a record for each tensor and operator, and for each channel.

    From above, for the reference kernels on 64 bits (`benchmarks/tflm_arena.py` compares it with what is measured); devices
    of 32 bits take about half.
    """
    found = 0
    for graph in model.subgraphs:
        channels = sum(
            graph.tensors[tensor].shape[-1]
            for operator in graph.operators
            for tensor in operator.outputs
            if operator.name in _BY_CHANNEL and graph.tensors[tensor].shape
        )
        found += (
            _OF_TENSOR * len(graph.tensors) + _OF_OPERATOR * len(graph.operators) + _OF_CHANNEL * channels
        )
    return aligned(_ALWAYS + found)


def arena_buffers(source: TfliteGraph, problem: OrderProblem, order: Sequence[int]) -> LayoutProblem:
    """Buffers of one call: a storage each, from the first to the last scope of its tensors, and scratch.

    A result on top of an operand has the buffer of the operand's storage.
    """
    spans, _ = _spans(source, problem, order)
    buffers = [
        Buffer(str(storage), first, last + 1, nbytes, ALIGNMENT)
        for storage, (first, last, nbytes) in spans.items()
    ]
    for scope, op in enumerate(order, start=1):
        if scratch := source.workspace.get(op, 0):
            buffers.append(Buffer(f"scratch of {op}", scope, scope + 1, scratch, ALIGNMENT))
    return LayoutProblem(tuple(buffers), source.model.name)


def _spans(
    source: TfliteGraph, problem: OrderProblem, order: Sequence[int]
) -> tuple[dict[int, tuple[int, int, int]], dict[int, int]]:
    """By storage with a buffer its first and last scope and its bytes; and by storage on top of another, that one."""
    spans: dict[int, tuple[int, int, int]] = {}
    for tensor, (first, last) in lifetimes(source.model.main, order).items():
        storage, nbytes = source.storage_of[tensor], aligned(source.model.main.tensors[tensor].nbytes)
        assert storage is not None
        old = spans.get(storage, (first, last, nbytes))
        spans[storage] = (min(first, old[0]), max(last, old[1]), max(nbytes, old[2]))
    home: dict[int, int] = {}
    for scope, op in enumerate(order, start=1):
        for pair in takeovers(problem, op):
            below, made = home.get(pair.read, pair.read), spans.get(pair.written)
            if made is not None and spans[below][1:] == (scope, made[2]):
                spans[below] = (spans[below][0], made[1], made[2])
                home[pair.written] = below
                del spans[pair.written]
    return spans, home


def _offsets(source: TfliteGraph, problem: OrderProblem, made: ArenaOrder) -> tuple[int, ...]:
    """By tensor, the offset of its storage; tensors that nothing names begin at 0, weights and variables lie elsewhere."""
    layout = made.layout.layout
    assert layout is not None
    placed = dict(zip((buffer.name for buffer in made.problem.buffers), layout.offsets, strict=True))
    _, home = _spans(source, problem, made.order)
    tensors = source.model.main.tensors
    return tuple(
        placed.get(str(home.get(storage, storage)), ANYWHERE)
        if storage is not None
        else 0
        if is_placed(tensor)
        else ANYWHERE
        for tensor, storage in zip(tensors, source.storage_of, strict=True)
    )


def _choices(source: TfliteGraph, offsets: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Offsets for the tensors of all subgraphs; several where the interpreter may place some as well itself.

    It takes the offset of a tensor for that of the tensor with the same index in every other subgraph. So one that would be
    taken twice is left to it.
    """
    _, *further = source.model.subgraphs
    if not further:
        return [offsets]
    shared = {index for graph in further for index, tensor in enumerate(graph.tensors) if is_placed(tensor)}
    anywhere = (ANYWHERE,) * sum(len(graph.tensors) for graph in further)
    own = tuple(ANYWHERE if index in shared else offset for index, offset in enumerate(offsets))
    return [(*own, *anywhere), (ANYWHERE,) * (len(own) + len(anywhere))]
