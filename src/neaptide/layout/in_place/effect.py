"""What in-place results do to the peak of a schedule."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule
from neaptide.layout.bounds import live_bytes
from neaptide.layout.from_schedule import schedule_buffers
from neaptide.layout.in_place.choices import InPlaceResult, choose_in_place
from neaptide.layout.in_place.shared_buffers import share


@dataclass(frozen=True, slots=True)
class InPlaceEffect:
    """One schedule, with and without results on top of operands.

    Attributes:
        peak_bytes: without; all storages of the device, the caller's included.
        in_place_peak_bytes: with.
        result: the choice.
    """

    peak_bytes: int
    in_place_peak_bytes: int
    result: InPlaceResult

    @property
    def saved_bytes(self) -> int:
        return self.peak_bytes - self.in_place_peak_bytes


def in_place_effect(
    graph: Graph,
    schedule: Schedule,
    registry: OpRegistry,
    *,
    donated: Collection[int] = (),
    binding: Mapping[str, int] | None = None,
    storage_bytes: Mapping[int, int] | None = None,
    workspace: Mapping[int, int] | None = None,
    device: str | None = None,
) -> InPlaceEffect:
    """Peaks of a schedule with every operand kept and with operands overwritten. O(size of the schedule).

    Without in-place results it is the peak of `analysis.profile_bytes.memory_profile`; a schedule without steps has
    none.

    Args:
        graph: the program.
        schedule: its steps.
        registry: what the operations mean.
        donated: values that the caller owns and gives up.
        binding: values of symbolic dims.
        storage_bytes: sizes by storage id that replace the recorded ones.
        workspace: scratch bytes by node id; None leaves them out.
        device: whose bytes; by default the one with the largest total of storages.
    """
    buffers = schedule_buffers(
        graph,
        schedule,
        binding=binding,
        storage_bytes=storage_bytes,
        workspace=workspace,
        device=device,
        alignment=1,
        results_outside=False,
        resident_outside=False,
    )
    result = choose_in_place(
        graph, schedule, registry, donated=donated, binding=binding, storage_bytes=storage_bytes
    )
    return InPlaceEffect(
        live_bytes(buffers.problem), live_bytes(share(buffers, result.choices).problem), result
    )
