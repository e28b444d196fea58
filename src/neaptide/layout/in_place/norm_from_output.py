"""Normalisations whose backward could read their output instead of their input: found and counted, never applied.

A norm's backward needs the normalised input. It follows from the output as `(output - bias) / weight`, where the output
is kept anyway for the layer behind; an activation in between must be invertible. Then the input's bytes end at its last
other use, and where that is the norm itself, the output is written on top of it. In-Place ABN (Rota Bulo et al., CVPR
2018) does this for batch norm with a leaky ReLU, the option `memory_efficient` of Apex for layer norm.

It is not bitwise: the division rounds anew, and a weight of zero has no inverse. PyTorch has no kernel for it either.
So it answers what such a kernel would save (`neaptide layout --ladder`), and changes no program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from neaptide.analysis.liveness import compute_liveness
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import Call, OpRegistry, Trait
from neaptide.ir.schedule import Schedule
from neaptide.layout.bounds import live_bytes
from neaptide.layout.from_schedule import OUTSIDE, ScheduleBuffers, schedule_buffers
from neaptide.layout.in_place.choices import choose_in_place
from neaptide.layout.in_place.instance_uses import InstanceUses, instance_uses
from neaptide.layout.in_place.shared_buffers import share
from neaptide.layout.problem import LayoutProblem

NOT_BITWISE: Final = (
    "the backward recovers its input from the output: it rounds anew, and a weight of zero has no inverse"
)


class NotRecoverable(StrEnum):
    """Why a norm's backward must have the input."""

    INPUT_STAYS = "the input is there anyway: something else needs it that long, or the caller holds it"
    OUTPUT_GONE = "neither the output nor an invertible function of it is kept for the backward"
    OVERWRITTEN = "the output is overwritten by an operation that cannot be inverted"
    REPEATED = "the norm, its backward or the input's maker runs more than once"


@dataclass(frozen=True, slots=True)
class NormPair:
    """A norm and its backward.

    Attributes:
        norm: node id.
        backward: node id.
        operand: value id of the norm's input.
        kept: value id of what the backward would read: the norm's output or a function of it; None with a refusal.
        nbytes: of the input.
        refusal: why the input must stay; None when it need not.
    """

    norm: int
    backward: int
    operand: int
    kept: int | None
    nbytes: int
    refusal: NotRecoverable | None = None


@dataclass(frozen=True, slots=True)
class NormEffect:
    """What a schedule would need if norms went backward from their outputs.

    Attributes:
        peak_bytes: with the inputs kept, in-place results included.
        recovered_peak_bytes: without the inputs of all pairs that have no refusal.
        pairs: every norm with a backward, in program order.
        why_not_bitwise: what it changes.
    """

    peak_bytes: int
    recovered_peak_bytes: int
    pairs: tuple[NormPair, ...]
    why_not_bitwise: str = NOT_BITWISE

    @property
    def recoverable(self) -> tuple[NormPair, ...]:
        return tuple(pair for pair in self.pairs if pair.refusal is None)


def norm_from_output_effect(
    graph: Graph,
    schedule: Schedule,
    registry: OpRegistry,
    *,
    binding: Mapping[str, int] | None = None,
    storage_bytes: Mapping[int, int] | None = None,
) -> NormEffect:
    """Find the norms whose input could be given up, and the peak without them. O(size of the schedule).

    Args:
        graph: the program.
        schedule: its steps.
        registry: what the operations mean.
        binding: values of symbolic dims.
        storage_bytes: sizes by storage id that replace the recorded ones.
    """
    liveness = compute_liveness(graph, schedule)
    uses = instance_uses(graph, liveness)
    buffers = schedule_buffers(
        graph,
        schedule,
        binding=binding,
        storage_bytes=storage_bytes,
        alignment=1,
        results_outside=False,
        resident_outside=False,
    )
    search = _Search(graph, registry, buffers, uses)
    pairs = tuple(search.judge(norm, backward) for norm, backward in _norms(graph, registry))
    chosen = choose_in_place(graph, schedule, registry, binding=binding, storage_bytes=storage_bytes).choices
    recoverable = [pair for pair in pairs if pair.refusal is None]
    kept = {search.kept_instance(pair) for pair in recoverable}
    shared = share(buffers, [choice for choice in chosen if choice.taken not in kept])
    less = search.without_inputs(shared, recoverable)
    return NormEffect(live_bytes(share(buffers, chosen).problem), live_bytes(less), pairs)


def _norms(graph: Graph, registry: OpRegistry) -> list[tuple[Node, Node]]:
    """Each norm with the norm that reads both its input and its statistics."""
    users = graph.consumers()
    found = []
    for node in graph.nodes:
        operand = _operand(graph, registry, node)
        if operand is None:
            continue
        readers = {user for value in node.outputs[1:] for user in users[value]} & set(users[operand])
        backward = next((graph.nodes[r] for r in sorted(readers) if _is_norm(registry, graph.nodes[r])), None)
        if backward is not None:
            found.append((node, backward))
    return found


def _is_norm(registry: OpRegistry, node: Node) -> bool:
    spec = registry.find(node.op)
    return spec is not None and spec.is_a(Trait.NORMALISATION)


def _operand(graph: Graph, registry: OpRegistry, node: Node) -> int | None:
    """The input of a norm that gives a result of the same shape and statistics."""
    if not _is_norm(registry, node) or len(node.outputs) < 2:
        return None
    operand = Call(graph, node).value(0)
    made = graph.values[node.outputs[0]]
    if (
        operand is None
        or operand.storage is None
        or operand.shape != made.shape
        or operand.dtype != made.dtype
    ):
        return None
    return operand.id


class _Search:
    def __init__(
        self, graph: Graph, registry: OpRegistry, buffers: ScheduleBuffers, uses: InstanceUses
    ) -> None:
        self.graph = graph
        self.registry = registry
        self.buffers = buffers
        self.uses = uses
        self.users = graph.consumers()
        self.positions: dict[int, list[int]] = {}
        for position, step in enumerate(buffers.liveness.steps):
            self.positions.setdefault(step.target, []).append(position)

    def judge(self, norm: Node, backward: Node) -> NormPair:
        """Whether the backward could do without the norm's input."""
        operand = Call(self.graph, norm).value(0)
        assert operand is not None
        once = all(len(self.positions.get(node.id, ())) == 1 for node in (norm, backward))
        if not once:
            return NormPair(norm.id, backward.id, operand.id, None, 0, NotRecoverable.REPEATED)
        start, end = self.positions[norm.id][0], self.positions[backward.id][0]
        taken = self.uses.seen[start][operand.id]
        instance = self.buffers.liveness.instances[taken]
        buffer = self.buffers.buffer_of[taken]
        nbytes = 0 if buffer == OUTSIDE else self.buffers.problem.buffers[buffer].nbytes
        kept, refusal = None, None
        if self.uses.seen[end].get(operand.id) != taken:
            refusal = NotRecoverable.REPEATED
        elif (
            instance.is_resident
            or taken in self.uses.handed_back
            or self.uses.touched[taken][-1] != end
            or not nbytes
        ):
            refusal = NotRecoverable.INPUT_STAYS
        else:
            kept, refusal = self._kept(norm, backward, self.uses.touched[taken][-2])
        return NormPair(norm.id, backward.id, operand.id, kept, nbytes, refusal)

    def _kept(self, norm: Node, backward: Node, end: int) -> tuple[int | None, NotRecoverable | None]:
        """A value that outlives the other uses of the input and from which the norm's output follows.

        Its bytes may have their own last use shortly before the backward of the norm; they are then kept until there.
        """
        output = norm.outputs[0]
        storage = self.graph.values[output].storage
        phase = backward.source.phase if backward.source.phase != norm.source.phase else ""
        overwritten = False
        for user in self.users[output]:
            node = self.graph.nodes[user]
            spec = self.registry.find(node.op)
            overwritten = overwritten or any(access.storage == storage for access in node.effects.writes)
            inverts = spec is not None and spec.invertible and node.inputs[0] == output
            if inverts and self._outlives(node.outputs[0], end, phase):
                return node.outputs[0], None
        if overwritten:
            return None, NotRecoverable.OVERWRITTEN
        return (output, None) if self._outlives(output, end, phase) else (None, NotRecoverable.OUTPUT_GONE)

    def _outlives(self, value: int, end: int, phase: str) -> bool:
        """Whether the bytes behind a value stay the same ones after a step, and are used in a phase, if one is named."""
        producer = self.graph.producer(value)
        if producer is None or len(self.positions.get(producer, ())) != 1:
            return False
        start = self.positions[producer][0]
        instance = self.uses.seen[start][value]
        storage = self.graph.values[value].storage
        later = [p for p in self.uses.touched[instance] if p > start]
        if any(self._writes(p, storage) for p in later):
            return False
        steps = self.buffers.liveness.steps
        return any(p > end and phase in ("", self.graph.nodes[steps[p].target].source.phase) for p in later)

    def kept_instance(self, pair: NormPair) -> int:
        """The storage instance that a backward would read in place of its input."""
        assert pair.kept is not None
        producer = self.graph.producer(pair.kept)
        assert producer is not None
        return self.uses.seen[self.positions[producer][0]][pair.kept]

    def _writes(self, position: int, storage: int | None) -> bool:
        node = self.graph.nodes[self.buffers.liveness.steps[position].target]
        return any(access.storage == storage for access in node.effects.writes)

    def without_inputs(self, shared: ScheduleBuffers, pairs: list[NormPair]) -> LayoutProblem:
        """The buffers with the inputs of these norms gone after their last other use, and the outputs kept."""
        members = list(shared.problem.buffers)
        for pair in pairs:
            norm, backward = self.positions[pair.norm][0], self.positions[pair.backward][0]
            taken = self.uses.seen[norm][pair.operand]
            index, kept = shared.buffer_of[taken], shared.buffer_of[self.kept_instance(pair)]
            made = shared.buffer_of[self.uses.seen[norm][self.graph.nodes[pair.norm].outputs[0]]]
            last = self.uses.touched[taken][-2]
            members[kept] = replace(members[kept], end=max(members[kept].end, backward + 1))
            members[index] = replace(members[index], end=last + 1)
            # With the norm as the input's last reader, the output begins where the input ends.
            if last == norm and members[made].nbytes == members[index].nbytes:
                members[made] = replace(members[made], start=norm + 1)
        return LayoutProblem(tuple(b for b in members if b.end > b.start), shared.problem.name)
