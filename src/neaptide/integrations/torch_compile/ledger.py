"""What is known of the graphs of a compiled model: one budget for all of them, and what was planned.

Dynamo hands over a model in several graphs where it breaks. Their forward passes run one after the other, so what the earlier
ones save is there while a later one runs, and counts into its budget.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from neaptide.integrations.torch_compile import _torch_private as private
from neaptide.integrations.torch_compile.options import Options
from neaptide.integrations.torch_compile.planning import PlannedJoint
from neaptide.units import format_bytes

logger = logging.getLogger(__name__)


class GraphBreakWarning(UserWarning):
    """A model was compiled in several graphs, whose budget is one."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What is planned of one graph of a model; bytes are those of the first call.

    Attributes:
        name: of the compilation, as Dynamo counts them.
        predicted_peak_bytes: highest bytes with workspace, those of earlier pieces (`outside_bytes`) included.
        baseline_peak_bytes: the same of program order with nothing recomputed.
        floor_bytes: no plan is proved to be impossible above it.
        saved_bytes: what it keeps for its backward beside its inputs and outputs.
        recomputed: operations that run again.
        lowering: what the programs are made of, in words.
    """

    name: str
    predicted_peak_bytes: int
    baseline_peak_bytes: int
    floor_bytes: int
    outside_bytes: int
    saved_bytes: int
    recomputed: int
    operations: int
    seconds: float
    baseline_seconds: float
    unknown_ops: tuple[str, ...]
    lowering: str = "kernels of ATen"

    @staticmethod
    def of(name: str, plan: PlannedJoint) -> Piece:
        """What a plan says."""
        made, outside = plan.predictions, plan.outside_bytes
        return Piece(
            name,
            made.peak_with_workspace_bytes + outside,
            made.baseline_peak_with_workspace_bytes + outside,
            made.lower_bound_bytes + outside,
            outside,
            plan.saved_bytes,
            plan.recomputed,
            len(plan.joint.graph.nodes),
            made.seconds,
            made.baseline_seconds,
            plan.joint.unknown_ops,
        )

    def __str__(self) -> str:
        peak, before = format_bytes(self.predicted_peak_bytes), format_bytes(self.baseline_peak_bytes)
        slower = self.seconds / self.baseline_seconds - 1 if self.baseline_seconds else 0.0
        return (
            f"graph {self.name}: predicted peak {peak} of {before}, {format_bytes(self.saved_bytes)} saved for the backward, "
            f"{self.recomputed} of {self.operations} operations recomputed, predicted time {slower:+.1%}; {self.lowering}"
        )


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
