"""Which results live in the bytes of an operand, under a schedule.

Two rules allow it. *Sole consumer*: no other operation needs the operand's bytes, so it holds in every order (the
lecture CS498 knows this one). *Last consumer*: the others have run before in the order at hand; those that the graph
alone would let run later are named as pins, which the order must keep. An operand is judged by storage instance, not by
storage: a recomputed one is another instance. Views count through the instance that they show.

What the operation itself permits is decided in `analysis.in_place`, which ordering shares.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from neaptide.analysis.in_place import Fit, NotInPlace, in_place_fits
from neaptide.analysis.liveness import Liveness, compute_liveness
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.ir.dependencies import needed_inputs, predecessors
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule, Step
from neaptide.layout.in_place.check import check_in_place


class Rule(StrEnum):
    """Why nobody needs the operand any more."""

    SOLE_CONSUMER = "sole consumer"
    LAST_CONSUMER = "last consumer"


@dataclass(frozen=True, slots=True)
class InPlaceChoice:
    """A result that is written on top of an operand.

    Attributes:
        step: which execution of which node.
        output: value id of the result.
        operand: value id of the operand.
        made: index in `Liveness.instances` of the storage instance that holds the result.
        taken: index of the instance whose bytes it takes.
        rule: why it may.
        pins: pairs (before, after): the first step must stay before the second. Empty where the graph sees to it.
        nbytes: of either.
    """

    step: Step
    output: int
    operand: int
    made: int
    taken: int
    rule: Rule
    pins: tuple[tuple[Step, Step], ...]
    nbytes: int

    @property
    def node(self) -> int:
        return self.step.target


@dataclass(frozen=True, slots=True)
class Refusal:
    """A result that is not written on top of an operand.

    Attributes:
        step: which execution of which node.
        output: value id of the result.
        operand: value id of the operand.
        reason: the first that was found.
        needed_by: the last step that needs the operand, where that is the reason.
    """

    step: Step
    output: int
    operand: int
    reason: NotInPlace
    needed_by: Step | None = None


@dataclass(frozen=True, slots=True)
class InPlaceResult:
    """The choice for a schedule.

    Attributes:
        choices: in the order of their steps; each result takes one operand, each instance is taken once.
        refusals: every other pair of a fresh result and an operand, in the order of their steps.
    """

    choices: tuple[InPlaceChoice, ...]
    refusals: tuple[Refusal, ...]

    def control_edges(self) -> tuple[tuple[int, int], ...]:
        """Node pairs (before, after) that a schedule without repetitions must keep, ascending."""
        pairs = {(before.target, after.target) for choice in self.choices for before, after in choice.pins}
        return tuple(sorted(pairs))


def choose_in_place(
    graph: Graph,
    schedule: Schedule,
    registry: OpRegistry,
    *,
    donated: Collection[int] = (),
    rules: Collection[Rule] = (Rule.SOLE_CONSUMER, Rule.LAST_CONSUMER),
    binding: Mapping[str, int] | None = None,
    storage_bytes: Mapping[int, int] | None = None,
) -> InPlaceResult:
    """Every result that may live in an operand's bytes does. O(size of the schedule + searches behind pins).

    An instance has its last use at one step only, so that two results never compete for one. Where two operands would
    do for a result, a donated one is taken first (it saves the result's bytes for its whole life, others for one
    step), then the one that needs fewer pins, then the first.

    Args:
        graph: the program.
        schedule: its steps.
        registry: what the operations mean.
        donated: values that the caller owns and gives up: a result may overwrite them after their last use.
        rules: those that may be used; with the sole consumers alone the choice holds for every order.
        binding: values of symbolic dims.
        storage_bytes: sizes by storage id that replace the recorded ones.
    """
    sizes = evaluate_storage_bytes(graph, binding, storage_bytes)
    search = _Search(graph, compute_liveness(graph, schedule), frozenset(donated))
    choices: list[InPlaceChoice] = []
    refusals: list[Refusal] = []
    for position, step in enumerate(search.liveness.steps):
        node = graph.nodes[step.target]
        found: list[InPlaceChoice] = []
        for fit in in_place_fits(graph, node, registry, sizes):
            answer = search.judge(position, fit, sizes)
            if isinstance(answer, InPlaceChoice) and answer.rule not in rules:
                answer = Refusal(step, fit.output, fit.operand, NotInPlace.NEEDED_LATER)
            if isinstance(answer, InPlaceChoice):
                found.append(answer)
            else:
                refusals.append(answer)
        found.sort(key=search.rank)
        choices += found[:1]
        refusals += [Refusal(step, c.output, c.operand, NotInPlace.RIVAL) for c in found[1:]]
    check_in_place(
        graph, schedule, [(c.step, c.output, c.operand) for c in choices], donated=frozenset(donated)
    )
    return InPlaceResult(tuple(choices), tuple(refusals))


class _Search:
    """Who else touches an operand's instance, and whether the graph keeps them in front."""

    def __init__(self, graph: Graph, liveness: Liveness, donated: frozenset[int]) -> None:
        self.graph = graph
        self.liveness = liveness
        self.uses: InstanceUses = instance_uses(graph, liveness)
        self.before = predecessors(graph)
        self.donated = {s for v in donated if (s := graph.values[v].storage) is not None}
        runs: dict[int, int] = {}
        for step in liveness.steps:
            runs[step.target] = runs.get(step.target, 0) + 1
        self.repeated = {node for node, count in runs.items() if count > 1}

    def judge(self, position: int, fit: Fit, sizes: tuple[int, ...]) -> InPlaceChoice | Refusal:
        """The answer to one pair at one step."""
        step = self.liveness.steps[position]
        if fit.reason is not None:
            return Refusal(step, fit.output, fit.operand, fit.reason)
        taken, made = self.uses.seen[position][fit.operand], self.uses.seen[position][fit.output]
        instance = self.liveness.instances[taken]
        reason, needed_by = self._refusal(position, taken, made)
        if reason is not None:
            return Refusal(step, fit.output, fit.operand, reason, needed_by)
        pins = tuple((self.liveness.steps[p], step) for p in self._loose(position, taken))
        sole = not pins and not self._readers(position, taken, fit.operand)
        return InPlaceChoice(
            step=step,
            output=fit.output,
            operand=fit.operand,
            made=made,
            taken=taken,
            rule=Rule.SOLE_CONSUMER if sole else Rule.LAST_CONSUMER,
            pins=pins,
            nbytes=sizes[instance.storage],
        )

    def rank(self, choice: InPlaceChoice) -> tuple[bool, int, bool]:
        """Smaller is better."""
        given = self.liveness.instances[choice.taken].is_resident
        return not given, len(choice.pins), choice.rule is Rule.LAST_CONSUMER

    def _refusal(self, position: int, taken: int, made: int) -> tuple[NotInPlace | None, Step | None]:
        instance = self.liveness.instances[taken]
        if instance.is_resident and instance.storage not in self.donated:
            return NotInPlace.CALLER_OWNED, None
        if taken in self.uses.handed_back:
            return NotInPlace.OPERAND_HANDED_BACK, None
        if made in self.uses.handed_back:
            return NotInPlace.RESULT_HANDED_BACK, None
        last = self.uses.touched[taken][-1]
        if last == position:
            return None, None
        step = self.liveness.steps[last]
        is_backward = self.graph.nodes[step.target].source.phase == "backward"
        here = self.graph.nodes[self.liveness.steps[position].target].source.phase
        later = (
            NotInPlace.NEEDED_BY_BACKWARD if is_backward and here == "forward" else NotInPlace.NEEDED_LATER
        )
        return later, step

    def _readers(self, position: int, taken: int, operand: int) -> bool:
        """Whether another step reads the same version of the operand's bytes."""
        value = self.graph.values[operand]
        for other in self.uses.touched[taken]:
            node = self.graph.nodes[self.liveness.steps[other].target]
            reads = any(a.storage == value.storage and a.version == value.version for a in node.effects.reads)
            writes = any(a.storage == value.storage for a in node.effects.writes)
            if other != position and reads and not writes:
                return True
        return False

    def _loose(self, position: int, taken: int) -> list[int]:
        """Positions of steps that touch the instance and that the graph alone does not keep in front of this one."""
        instance = self.liveness.instances[taken]
        node = self.liveness.steps[position].target
        # Without the step that makes the instance nobody could read it.
        others = [
            p
            for p in self.uses.touched[taken]
            if p < position and (instance.is_resident or p > instance.start)
        ]
        ancestors = self._ancestors(node, {self.liveness.steps[p].target for p in others})
        if node in self.repeated:
            return others
        # The graph orders nodes; which execution of a repeated one it means is up to the schedule.
        return [
            p
            for p in others
            if (other := self.liveness.steps[p].target) not in ancestors or other in self.repeated
        ]

    def _ancestors(self, node: int, wanted: set[int]) -> set[int]:
        """Those of `wanted` that must run before `node`. Edges lead to smaller ids, so the search stops early."""
        floor = min(wanted, default=node)
        found: set[int] = set()
        waiting = [node]
        while waiting and not wanted <= found:
            for before in self.before[waiting.pop()]:
                if before >= floor and before not in found:
                    found.add(before)
                    waiting.append(before)
        return found & wanted


@dataclass(frozen=True, slots=True)
class InstanceUses:
    """Names and steps by storage instance.

    Attributes:
        seen: by position, the instance of each value that the step needs or makes; host scalars have none.
        touched: by instance, positions of the steps that make, need, overwrite or show it, ascending.
        handed_back: instances that hold results of the program.
    """

    seen: tuple[Mapping[int, int], ...]
    touched: tuple[tuple[int, ...], ...]
    handed_back: frozenset[int]


def instance_uses(graph: Graph, liveness: Liveness) -> InstanceUses:
    """Follow the bindings of a schedule. O(total inputs and outputs of its steps)."""
    bindings = iter(liveness.bindings)
    current = {value: next(bindings).instance for value in graph.inputs}
    seen: list[dict[int, int]] = []
    touched: list[list[int]] = [[] for _ in liveness.instances]
    for position, step in enumerate(liveness.steps):
        node = graph.nodes[step.target]
        here = {value: current[value] for value in needed_inputs(graph, node)}
        for value in node.outputs:
            current[value] = here[value] = next(bindings).instance
        known = {value: instance for value, instance in here.items() if instance is not None}
        seen.append(known)
        for instance in dict.fromkeys(known.values()):
            touched[instance].append(position)
    kept = frozenset(i for value in graph.outputs if (i := current[value]) is not None)
    return InstanceUses(tuple(seen), tuple(map(tuple, touched)), kept)
