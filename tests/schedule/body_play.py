"""Random graphs with loops in loops, schedules of them whose bodies have offloads, and what these cost."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import strategies as st

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.loops import NO_BODIES
from neaptide.analysis.profile_bytes import loop_workspace_bytes
from neaptide.cost.model import loop_seconds
from neaptide.errors import VerifyError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import MergeMap, SliceMap
from neaptide.ir.schedule import Offload, Schedule
from neaptide.symbolic.size_expr import SizeExpr
from neaptide_corpus.training_steps import toy_registry

REGISTRY = toy_registry()


@dataclass(frozen=True)
class QuarterCost:
    """Seconds in quarters by what a call is and by the sizes around it; no workspace."""

    sizes: tuple = ()
    call_s: float = 0.25
    is_measured: bool = False

    def plain_seconds(self, graph, node, sizes):
        """Of a node that is no loop."""
        shapes = [str(graph.values[value].shape) for value in (*node.inputs, *node.outputs)]
        text = f"{node.op} {shapes} {sorted(sizes.items())}"
        return zlib.crc32(text.encode()) % 24 / 4

    def seconds(self, graph, node, bodies=NO_BODIES):
        if node.regions:
            return loop_seconds(graph, node, dict(self.sizes), self.plain_seconds, bodies, call_s=self.call_s)
        return self.plain_seconds(graph, node, dict(self.sizes))

    def workspace_bytes(self, graph, node, bodies=NO_BODIES):
        return loop_workspace_bytes(graph, node, dict(self.sizes), bodies=bodies) if node.regions else 0

    def under(self, sizes):
        return QuarterCost(tuple(sorted(sizes.items())), self.call_s)

    def storage_bytes(self, graph, nodes=None):
        return {}

    def describe(self):
        return "in quarters"


@st.composite
def looped(draw):
    """A graph with a loop over its rows, perhaps with a loop in that; the last part may be one row shorter."""
    step, parts, depth = draw(st.integers(4, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 2))
    rows = step * parts - (draw(st.integers(0, 1)) if parts > 1 else 0)
    b = GraphBuilder("whole", REGISTRY)
    x = b.input("x", (rows, 2))
    b.output(_layers(draw, b, str(rows), x, step, parts, depth))
    return b.finish()


def _layers(draw, b, rows, x, step, parts, depth):
    """Operations on all rows; one of them is a loop over parts of them where `depth` allows."""
    values, loop_at = [x], draw(st.integers(1, 2)) if depth else -1
    for number in range(draw(st.integers(4, 5))):
        width = 2 if number in (loop_at, loop_at - 1) else draw(st.integers(1, 4))
        told = [f"h{depth}_{number}: f32[{rows}, {width}]"]
        if number == loop_at:
            part = f"part{depth}"
            body = GraphBuilder(f"body{depth}", REGISTRY)
            taken = body.input("taken", (SizeExpr.dim(part), 2))
            body.output(_layers(draw, body, f"{{{part}}}", taken, -(-step // 2), 2, depth - 1))
            slices, merges = [SliceMap(0, 0, SizeExpr.const(step))], [MergeMap(0, "concat", 0)]
            (made,) = b.loop(body.finish(), parts, [values[-1]], outputs=told, slices=slices, merges=merges)
        else:
            reads = draw(st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True))
            (made,) = b.node("toy.mix", *reads, outputs=told)
        values.append(made)
    (out,) = b.node("toy.mix", values[-1], values[1], outputs=[f"out{depth}: f32[{rows}, 2]"])
    return out


@st.composite
def offloaded(draw, graph):
    """A legal schedule in program order, with offloads in it and in the bodies of its loops."""
    bodies = {node.id: draw(offloaded(node.regions[0].body)) for node in graph.nodes if node.regions}
    schedule = Schedule.program_order(graph, bodies)
    gaps = []
    for storage in set(range(len(graph.storages))) - set(graph.input_storages()):
        uses = [
            node.id
            for node in graph.nodes
            if storage in {graph.values[v].storage for v in (*node.inputs, *node.outputs)}
        ]
        gaps += [(storage, first, then) for first, then in pairwise(uses) if then > first + 1]
    offloads = []
    for storage, first, then in (
        draw(st.lists(st.sampled_from(gaps), unique=True, max_size=3)) if gaps else []
    ):
        gone, load = sorted(draw(st.tuples(st.integers(first, then - 1), st.integers(first + 1, then))))
        offload = Offload(storage, 0, draw(st.integers(first, gone)), gone, max(load, gone + 1), then)
        try:
            check_schedule(graph, schedule.with_offloads([*offloads, offload]), REGISTRY)
        except VerifyError:
            continue
        offloads.append(offload)
    return schedule.with_offloads(offloads)
