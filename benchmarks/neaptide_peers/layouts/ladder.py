"""The ladder of the deep-learning systems lecture (CS498) on a real step: four ways to give results their memory.

Each rung uses what the one above does and one thing more: nothing shared; results on top of operands; memory handed on
by liveness counters while the program runs; addresses planned ahead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule
from neaptide.layout.best_layout import best_layout
from neaptide.layout.bounds import live_bytes
from neaptide.layout.from_schedule import OUTSIDE, ScheduleBuffers, schedule_buffers
from neaptide.layout.in_place import InPlaceChoice, choose_in_place, instance_uses, share
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import Layout
from neaptide.layout.validate import check_layout
from neaptide.outcome import Limits
from neaptide_peers.layouts.tags import TagPlan, TagStep, allocate_tags

_WORK: Final = 200_000  # nodes, where no limit is given


class LadderRow(NamedTuple):
    """One rung.

    Attributes:
        name: what it is called.
        nbytes: memory for what the program makes; the caller's storages and handed-back results are the same for all
            rungs and left out.
        note: what it did, in words.
    """

    name: str
    nbytes: int
    note: str


def memory_ladder(
    graph: Graph,
    schedule: Schedule,
    registry: OpRegistry,
    *,
    storage_bytes: Mapping[int, int] | None = None,
    alignment: int = 64,
    plan: Callable[[LayoutProblem], Layout] | None = None,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
) -> tuple[LadderRow, ...]:
    """No reuse, in-place, sharing by liveness counter, static plan: one row each.

    Args:
        graph: the program.
        schedule: its steps.
        registry: what the operations mean.
        storage_bytes: sizes by storage id that replace the recorded ones.
        alignment: of every buffer; sizes are rounded up to it.
        plan: makes the static plan; by default all methods together do.
        limits: of the search for the static plan; where they limit nothing, a fixed amount of work does.
        interrupt: set it to take the best static plan so far.
    """
    buffers = schedule_buffers(graph, schedule, storage_bytes=storage_bytes, alignment=alignment)
    choices = choose_in_place(graph, schedule, registry, storage_bytes=storage_bytes)
    shared = share(buffers, choices)
    tags = schedule_tags(graph, buffers, choices)
    layout = _planned(shared.problem, limits, interrupt) if plan is None else plan(shared.problem)
    check_layout(shared.problem, layout)
    passed = len(buffers.problem) - len(shared.problem)
    return (
        LadderRow(
            "no reuse", _total(buffers.problem), f"{len(buffers.problem)} storages, each its own bytes"
        ),
        LadderRow("in-place", _total(shared.problem), f"{passed} results lie on top of operands"),
        LadderRow(
            "liveness counters",
            tags.total_bytes,
            f"{len(tags.tag_bytes)} tags, handed on as the program runs",
        ),
        LadderRow(
            "static plan",
            layout.arena_bytes,
            f"{len(shared.problem)} buffers in one arena; {live_bytes(shared.problem)} bytes are live together",
        ),
    )


def schedule_tags(graph: Graph, buffers: ScheduleBuffers, choices: Collection[InPlaceChoice]) -> TagPlan:
    """The lecture's allocator on a schedule: values are storage instances, chosen results take their operand's tag.

    Sizes are rounded up to the alignment. Instances outside the arena have no tag.

    Args:
        graph: the program.
        buffers: of the schedule, not shared yet.
        choices: results on top of operands.
    """
    uses = instance_uses(graph, buffers.liveness)
    instances = range(len(buffers.liveness.instances))
    shared = share(buffers, choices)
    inside = {i for i in instances if shared.buffer_of[i] != OUTSIDE}
    sizes = [0] * len(instances)
    for instance in inside:
        buffer = buffers.problem.buffers[buffers.buffer_of[instance]]
        sizes[instance] = -(-buffer.nbytes // buffer.alignment) * buffer.alignment
    passed: dict[int, list[tuple[int, int]]] = {}
    for choice in choices:
        if {choice.made, choice.taken} <= inside:
            passed.setdefault(choice.made, []).append((choice.made, choice.taken))
    steps = []
    for position, (step, seen) in enumerate(zip(buffers.liveness.steps, uses.seen, strict=True)):
        here = [i for i in dict.fromkeys(seen.values()) if i in inside]
        makes = tuple(
            i
            for i in here
            if buffers.liveness.instances[i].start == position
            and not buffers.liveness.instances[i].is_persistent
        )
        reads = tuple(i for i in here if i not in makes)
        overwrites = tuple(pair for made in makes for pair in passed.get(made, ()))
        steps.append(TagStep(graph.nodes[step.target].op, makes, reads, overwrites))
    return allocate_tags(steps, sizes, kept=uses.handed_back & inside, last_consumer=True)


def _total(problem: LayoutProblem) -> int:
    """Bytes of all buffers, each on its own."""
    return sum(-(-buffer.nbytes // buffer.alignment) * buffer.alignment for buffer in problem.buffers)


def _planned(problem: LayoutProblem, limits: Limits | None, interrupt: threading.Event | None) -> Layout:
    limits = limits or Limits()
    if limits.time_s is None and limits.work is None:
        limits = replace(limits, work=_WORK)
    found = best_layout(problem, limits, interrupt).require().layout
    assert found is not None  # no capacity was given
    return found
