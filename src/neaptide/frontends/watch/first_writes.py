"""Python state that a step writes at its first call and finds as it should be at every later one.

A library that sets `config.problem_type` where it is None, or a flag "is built", writes once. With that value in
place the step writes nothing, and its program is the program of every step. The capture leaves the user's objects
alone; a planned step writes the value when it first runs, as the step itself would have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from neaptide.errors import PlanMismatch
from neaptide.frontends.objects.containers import drop
from neaptide.frontends.objects.places import MISSING, ItemPlace, Place, read
from neaptide.frontends.objects.values import is_same
from neaptide.frontends.state.step_state import StepState
from neaptide.frontends.watch.trace_watch import LeftTensor, Write


@dataclass(frozen=True)
class FirstWrites:
    """Writes that a step does where it finds what was there before them, each with its place.

    The places belong to the user's objects of one step; `of` finds them on others. Tensors are written at every call:
    by the first write with one without bytes, then by the program. Where the step does not read the tensor of the call
    before (`overwritten`), that one is let go of when a call begins.
    """

    found: tuple[tuple[Place, Write], ...] = ()
    overwritten: frozenset[str] = frozenset()

    @property
    def left(self) -> list[tuple[Place, LeftTensor]]:
        """Places in which the step leaves another tensor at each call."""
        return [(place, write.after) for place, write in self.found if isinstance(write.after, LeftTensor)]

    def __bool__(self) -> bool:
        return bool(self.found)

    @staticmethod
    def of(writes: Sequence[Write], state: StepState) -> FirstWrites:
        """Writes of plain data and tensors in the state of a step, as it was found before any of them was done."""
        found = []
        for write in writes:
            try:
                place = write.place(state)
            except IndexError:
                place = None
            if place is None or place.name != write.name:
                raise PlanMismatch(
                    "these objects differ from those that the step was captured with",
                    why=f"{write.name} is not there, which the step writes when it first runs",
                    next_step="make the factory return the same model and batch each time",
                )
            found.append((place, write))
        return FirstWrites(tuple(found))

    @property
    def writes(self) -> tuple[Write, ...]:
        """The writes without their places."""
        return tuple(write for _, write in self.found)

    def do(self) -> None:
        """Write each value where the one before it is; a place that holds another one is left to the guards."""
        self.let_go()
        for place, write in self.found:
            content = read(place)
            if isinstance(content, torch.Tensor) and isinstance(write.after, LeftTensor):
                continue
            if is_same(content, write.before):
                _put(place, _as_written(write))

    def let_go(self) -> None:
        """Drop the tensors that a call overwrites unread."""
        for place, write in self.found:
            if write.name in self.overwritten and isinstance(read(place), torch.Tensor):
                _put(place, _as_written(write))

    def odd_facts(self) -> tuple[tuple[str, Any], ...]:
        """Places that hold neither a tensor that the step leaves nor what its first write overwrites."""
        left = [(place, write) for place, write in self.found if isinstance(write.after, LeftTensor)]
        return tuple(
            (f"what is no tensor in {place.name}", True)
            for place, write in left
            if not isinstance(read(place), torch.Tensor) and not is_same(read(place), write.before)
        )

    @contextlib.contextmanager
    def done(self) -> Iterator[None]:
        """Everything as it is after the writes; put back at the end."""
        before = self.contents()
        self.do()
        try:
            yield
        finally:
            self.put_back(before)

    def contents(self) -> list[Any]:
        """What is in the places now, for `put_back`."""
        return [read(place) for place, _ in self.found]

    def put_back(self, contents: Sequence[Any]) -> None:
        """Have in the places what was there."""
        for (place, _), content in zip(self.found, contents, strict=True):
            _put(place, content)


NO_WRITES = FirstWrites()


def _as_written(write: Write) -> Any:
    return write.after.placeholder() if isinstance(write.after, LeftTensor) else write.after


def _put(place: Place, content: Any) -> None:
    if content is not MISSING:
        place.set(content)
    elif isinstance(place, ItemPlace):
        drop(place.holder, place.key)
