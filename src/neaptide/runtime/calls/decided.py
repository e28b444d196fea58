"""Whether a call takes the branches that a program was captured with, as the numbers of the host say."""

from __future__ import annotations

from typing import Any

from neaptide.frontends.recording.host_part import HostPart
from neaptide.frontends.state.step_state import StepState
from neaptide.runtime.calls.input_readers import Reader, input_reader


class Decided:
    """The branches of one program, tied to the user's objects."""

    def __init__(self, part: HostPart, state: StepState) -> None:
        self._part = part
        slots = {slot.name: slot for slot in state.tensors}
        self._readers: list[Reader] = [input_reader(key, state, slots) for key in part.keys]

    def hold(self, leaves: list[Any]) -> bool:
        """Whether a call whose arguments have these leaves takes the same branches. O(numbers that decide)."""
        return self._part.holds([reader(leaves) for reader in self._readers])
