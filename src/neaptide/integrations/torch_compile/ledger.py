"""What is known of the graphs of a compiled model: one budget for all of them, and what was planned.

Dynamo hands over a model in several graphs where it breaks. Their forward passes run one after the other, so what the earlier
ones save is there while a later one runs, and counts into its budget. All of a later one runs between the passes of an earlier
one, and counts into its budget there: where that is too much, the earlier one is planned again, and its programs are made anew
at its next call.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx

from neaptide.integrations.torch_compile import _torch_private as private
from neaptide.integrations.torch_compile.elsewhere import NOTHING, Elsewhere
from neaptide.integrations.torch_compile.joint.joint_graph import JointGraph
from neaptide.integrations.torch_compile.options import BEST, Options
from neaptide.integrations.torch_compile.planning import PlannedJoint, plan_joint
from neaptide.units import format_bytes

logger = logging.getLogger(__name__)


class GraphBreakWarning(UserWarning):
    """A model was compiled in several graphs, whose budget is one."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What is planned of one graph of a model; bytes are those of the first call.

    Attributes:
        name: of the compilation, as Dynamo counts them.
        predicted_peak_bytes: highest bytes with workspace, those of other pieces and what is measured of the caller's code included.
        baseline_peak_bytes: the same of program order with nothing recomputed.
        floor_bytes: no plan is proved to be impossible above it.
        outside_bytes: what is there while it runs: inputs of other pieces, what earlier ones save, and on a card what the libraries
            keep, what the blocks of its allocator are larger than asked for, and what your own code keeps from its forward to its
            backward, measured at the first call.
        between_bytes: that later pieces, or your own code, take at most between its passes.
        saved_bytes: what it keeps for its backward beside its inputs and outputs.
        recomputed: operations that run again.
        lowering: what the programs are made of, in words.
        parts: what runs in parts, in words; empty where nothing does.
    """

    name: str
    predicted_peak_bytes: int
    baseline_peak_bytes: int
    floor_bytes: int
    outside_bytes: int
    between_bytes: int
    saved_bytes: int
    recomputed: int
    operations: int
    seconds: float
    baseline_seconds: float
    unknown_ops: tuple[str, ...]
    lowering: str = "kernels of ATen"
    parts: str = ""

    @staticmethod
    def of(name: str, plan: PlannedJoint, elsewhere: Elsewhere) -> Piece:
        """What a plan says, beside what is there from elsewhere now."""
        made, held = plan.predictions, elsewhere.held + plan.card_bytes
        return Piece(
            name,
            plan.peak_beside(elsewhere),
            made.baseline_peak_with_workspace_bytes + held,
            made.lower_bound_bytes + held,
            held,
            elsewhere.between,
            plan.saved_bytes,
            plan.recomputed,
            len(plan.joint.graph.nodes),
            made.seconds,
            made.baseline_seconds,
            plan.joint.unknown_ops,
            parts=plan.parts,
        )

    def __str__(self) -> str:
        peak, before = format_bytes(self.predicted_peak_bytes), format_bytes(self.baseline_peak_bytes)
        slower = self.seconds / self.baseline_seconds - 1 if self.baseline_seconds else 0.0
        return (
            f"graph {self.name}: predicted peak {peak} of {before}, {format_bytes(self.saved_bytes)} saved for the backward, "
            f"{self.recomputed} of {self.operations} operations recomputed, predicted time {slower:+.1%}"
            f"{f', {self.parts}' if self.parts else ''}; {self.lowering}"
        )


@dataclass
class Entry:
    """What the ledger keeps of a graph.

    Attributes:
        joint: as it was read.
        inputs: bytes of its inputs that nobody computes, by storage.
        plan_again: told of a plan that takes the place of the one that runs.
        caller: what the caller's code was measured to take.
    """

    joint: JointGraph
    names: Sequence[str]
    inputs: Mapping[int, int]
    plan_again: Callable[[PlannedJoint], None]
    plan: PlannedJoint
    caller: Elsewhere = NOTHING

    @property
    def working_bytes(self) -> int:
        """The most that it takes beside its inputs."""
        made = self.plan.predictions
        return made.peak_with_workspace_bytes - made.persistent_bytes


@dataclass
class Ledger:
    """The graphs of one model, by the frame that each was compiled for.

    Attributes:
        given: the options as they were handed over; kept, since ledgers go by its identity.
        is_open: the last graph ended with a break, so the next frame belongs to the same model.
    """

    options: Options
    given: Mapping[str, Any] | None = None
    pieces: dict[str, Piece] = field(default_factory=dict)
    is_open: bool = True
    _told: set[str] = field(default_factory=set)
    _entries: dict[str, Entry] = field(default_factory=dict)

    def plan(
        self,
        frame: str,
        joint: JointGraph,
        names: Sequence[str],
        inputs: Mapping[int, int],
        plan_again: Callable[[PlannedJoint], None],
    ) -> PlannedJoint:
        """Plan a graph beside the others; it replaces an earlier one for the same frame (another shape, say).

        Raises:
            InfeasibleBudget: no plan within the budget was found, and `on_infeasible` is `raise`.
        """
        best = replace(self.options, on_infeasible=BEST)
        others = {name: one for name, one in self._entries.items() if name != frame}
        elsewhere = self._elsewhere(frame, inputs)
        plan = plan_joint(joint, best if others else self.options, elsewhere, names)
        self._entries[frame] = entry = Entry(joint, names, inputs, plan_again, plan)
        self._settle(frame)
        if not plan.is_within and others:
            # Earlier ones save less by now, if they can.
            entry.plan = plan_joint(joint, self.options, self._elsewhere(frame, inputs), names)
        self._note()
        return entry.plan

    def measured(self, frame: str, caller: Elsewhere) -> None:
        """Count what the caller's code was measured to take while a graph waits."""
        entry = self._entries[frame]
        entry.caller = caller
        self._plan_again(frame, entry)
        self._note()

    def _settle(self, frame: str) -> None:
        """Plan the graphs before one again that are above the budget with it, the last first."""
        names = list(self._entries)
        for name in reversed(names[: names.index(frame)]):
            self._plan_again(name, self._entries[name])

    def _plan_again(self, frame: str, entry: Entry) -> None:
        elsewhere = self._elsewhere(frame, entry.inputs)
        if self.options.peak is None or entry.plan.peak_beside(elsewhere) <= entry.plan.allowed_bytes:
            return
        best = replace(self.options, on_infeasible=BEST)
        made = plan_joint(entry.joint, best, elsewhere, entry.names)
        if made.peak_beside(elsewhere) < entry.plan.peak_beside(elsewhere):
            logger.info("graph %s is planned again, for what runs between its passes", frame)
            entry.plan = made
            entry.plan_again(made)

    def _elsewhere(self, frame: str, inputs: Mapping[int, int]) -> Elsewhere:
        """What others take while a graph runs, and between its passes."""
        names = list(self._entries)
        at = names.index(frame) if frame in names else len(names)
        caller = self._entries[frame].caller if frame in names else NOTHING
        held: dict[int, int] = {}
        for name in (*names[:at], *names[at + 1 :]):
            held.update(self._entries[name].inputs)
        for one in inputs:
            held.pop(one, None)
        saved = sum(self._entries[name].plan.saved_bytes for name in names[:at])
        later = [self._entries[name].working_bytes for name in names[at + 1 :]]
        # The gradient that comes back to this one is made by a later one.
        back = self._entries[frame].plan.tangent_bytes if later else 0
        return Elsewhere(
            sum(held.values()) + saved + caller.held, max([caller.between, *(most - back for most in later)])
        )

    def _note(self) -> None:
        for name, entry in self._entries.items():
            piece = Piece.of(name, entry.plan, self._elsewhere(name, entry.inputs))
            if self.pieces.get(name) != piece:
                self.add(piece)

    def outside_bytes(self, frame: str) -> int:
        """What the graphs of earlier frames hold while this one runs."""
        earlier = list(self.pieces)
        if frame in earlier:
            earlier = earlier[: earlier.index(frame)]
        return sum(self.pieces[name].saved_bytes for name in earlier)

    def add(self, piece: Piece) -> None:
        """Note what is planned of a graph; it replaces an earlier plan for the same frame (another shape, say)."""
        self.pieces[piece.name] = piece
        logger.info("%s", piece)

    def look_for_break(self, module: fx.GraphModule) -> None:
        """See whether more graphs of the model are to come, and tell the line where this one breaks, once."""
        broken = private.graph_break(module)
        self.is_open = broken is not None
        if broken is None or broken in self._told or self.options.peak is None:
            return
        self._told.add(broken)
        warnings.warn(
            f"the graph breaks at {broken}: the parts before and after it are planned one by one, within one budget",
            GraphBreakWarning,
            stacklevel=2,
        )


_ledgers: list[Ledger] = []


def ledger_of(given: Mapping[str, Any] | None, options: Options, frame: str) -> Ledger:
    """The ledger of a frame: that of an earlier graph for it, or of the model whose graphs are not all there; else a new one.

    A call of `torch.compile` hands over the same object of options each time.
    """
    alike = [ledger for ledger in reversed(_ledgers) if ledger.given is given and ledger.options == options]
    for ledger in alike:
        if frame in ledger.pieces:
            return ledger
    if alike and alike[0].is_open:
        return alike[0]
    _ledgers.append(Ledger(options, given))
    return _ledgers[-1]


def ledgers() -> tuple[Ledger, ...]:
    """Of all models that were compiled with this backend in this process, oldest first."""
    return tuple(_ledgers)
