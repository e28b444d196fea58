"""Schedule: the total order of steps. The only place where time exists.

Names behave like Python variables. A `COMPUTE` or `RECOMPUTE` step binds the node's outputs to fresh storage
instances (or, for a view or an in-place op, to the instance that its operand is bound to at that moment); later
steps read the latest binding. `FREE` steps say where an instance's bytes end; they follow from the order and are
put in by `analysis.liveness.with_frees`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from neaptide.ir.graph import Graph


class StepKind(StrEnum):
    """What a step does. `target` of the step is a node for the first three, a storage for the others."""

    COMPUTE = "compute"
    RECOMPUTE = "recompute"
    LOOP = "loop"
    FREE = "free"
    STORE = "store"
    LOAD = "load"
    WAIT = "wait"
    EVICT = "evict"
    REGENERATE = "regenerate"


NODE_STEPS = frozenset({StepKind.COMPUTE, StepKind.RECOMPUTE, StepKind.LOOP})


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        kind: what it does.
        target: node id (compute, recompute, loop) or storage id (the others).
        occurrence: 0 for the first execution or instance, k for the k-th repetition.
    """

    kind: StepKind
    target: int
    occurrence: int = 0

    @property
    def runs_node(self) -> bool:
        return self.kind in NODE_STEPS


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps in the order in which they run.

    Attributes:
        steps: in running order.
        bodies: by node with a loop, the order of one trip of its body; program order where none is given.
    """

    steps: tuple[Step, ...]
    bodies: Mapping[int, Schedule] = field(default_factory=dict, hash=False)

    def node_steps(self) -> tuple[Step, ...]:
        """The steps that run nodes, in order."""
        return tuple(step for step in self.steps if step.runs_node)

    @staticmethod
    def from_nodes(graph: Graph, sequence: Iterable[int]) -> Schedule:
        """Node ids in running order; an id that appears again is a recomputation."""
        seen: dict[int, int] = {}
        steps = []
        for node in sequence:
            occurrence = seen.get(node, 0)
            seen[node] = occurrence + 1
            if occurrence:
                kind = StepKind.RECOMPUTE
            else:
                kind = StepKind.LOOP if graph.nodes[node].regions else StepKind.COMPUTE
            steps.append(Step(kind, node, occurrence))
        return Schedule(tuple(steps))

    @staticmethod
    def program_order(graph: Graph) -> Schedule:
        """The order in which the program was captured: the baseline."""
        return Schedule.from_nodes(graph, range(len(graph.nodes)))
