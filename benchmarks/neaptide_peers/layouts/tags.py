"""The allocator of the deep-learning systems lecture: tags for values, a box of free tags, a counter per value.

Each value that a program makes has a tag, which stands for memory, and a counter of consumers that have not run yet.
A step takes a tag for its result: the one of an operand that it may overwrite, else one from the box, else a new
one. When a counter reaches zero its tag goes into the box. A tag is as large as its largest value.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from neaptide.layout.placement import watched
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import Layout
from neaptide.outcome import LimitGuard
from neaptide_peers.layouts.end_to_end import lay_end_to_end

NO_TAG: Final = -1
"""The tag of a value that no step makes, in `TagPlan.tag_of`."""


@dataclass(frozen=True, slots=True)
class TagStep:
    """One operation.

    Attributes:
        name: for printing.
        makes: values that it makes.
        reads: values that it needs; those that no step makes are the caller's and have no tag.
        overwrites: pairs of a value that it makes and one that it reads, whose memory it may use for it.
    """

    name: str
    makes: tuple[int, ...]
    reads: tuple[int, ...] = ()
    overwrites: tuple[tuple[int, int], ...] = ()


class TagAction(StrEnum):
    """What happens to a tag: passed on by an operand, taken from the box, made, or put back into the box."""

    PASSED = "passed"
    TAKEN = "taken"
    MADE = "made"
    BACK = "back"


@dataclass(frozen=True, slots=True)
class TagEvent:
    """One thing that happens to one tag.

    Attributes:
        step: position.
        action: what.
        tag: its number.
        value: who gets it, or gives it back.
        giver: the operand that passes it on; None for other actions.
    """

    step: int
    action: TagAction
    tag: int
    value: int
    giver: int | None = None


@dataclass(frozen=True, slots=True)
class TagPlan:
    """Tags of all values.

    Attributes:
        steps: what was planned.
        tag_of: by value, or `NO_TAG`.
        tag_bytes: by tag, the size of its largest value.
        events: in order.
    """

    steps: tuple[TagStep, ...]
    tag_of: tuple[int, ...]
    tag_bytes: tuple[int, ...]
    events: tuple[TagEvent, ...]

    @property
    def total_bytes(self) -> int:
        """Bytes of all tags together."""
        return sum(self.tag_bytes)

    def lines(self, names: Sequence[str] | None = None) -> Iterator[str]:
        """The run in words, a line for each event, with what is in the box after it. O(box) a line.

        Args:
            names: of values; by default `v0`, `v1` and so on.
        """

        def name(value: int | None) -> str:
            assert value is not None
            return f"v{value}" if names is None else names[value]

        box: set[int] = set()
        for event in self.events:
            if event.action is TagAction.PASSED:
                what = f"{name(event.value)} takes tag {event.tag} from {name(event.giver)}"
            elif event.action is TagAction.TAKEN:
                box.remove(event.tag)
                what = f"{name(event.value)} takes tag {event.tag} from the box"
            elif event.action is TagAction.MADE:
                what = f"{name(event.value)} takes the new tag {event.tag}"
            else:
                box.add(event.tag)
                what = f"{name(event.value)} puts tag {event.tag} into the box"
            inside = ", ".join(map(str, sorted(box)))
            yield f"step {event.step}: {self.steps[event.step].name}: {what}; box {{{inside}}}"


def allocate_tags(
    steps: Sequence[TagStep],
    sizes: Sequence[int],
    *,
    kept: Collection[int] = (),
    last_consumer: bool = False,
) -> TagPlan:
    """Give every value a tag. O(reads + values * log(box)), plus moves inside the sorted box.

    Out of the box comes the smallest tag that is large enough, else the largest, which grows.

    Args:
        steps: in order; each value is made once.
        sizes: bytes by value.
        kept: values that outlive the program; their tags never go into the box.
        last_consumer: let a step overwrite an operand that it is the last to read in this order; by default only one
            that nothing else ever reads, which holds in every order.
    """
    return _Allocator(steps, sizes, kept, last_consumer).run()


def steps_of_problem(problem: LayoutProblem) -> tuple[TagStep, ...]:
    """A program with the lifetimes of a problem: each buffer has one consumer, at its last step. O(n log n).

    Fixed buffers are left out, gaps count as in use.
    """
    makes: dict[int, list[int]] = {}
    reads: dict[int, list[int]] = {}
    for index, buffer in enumerate(problem.buffers):
        if buffer.offset is None:
            makes.setdefault(buffer.start, []).append(index)
            if buffer.end > buffer.start + 1:
                reads.setdefault(buffer.end - 1, []).append(index)
    return tuple(
        TagStep(f"t{time}", tuple(makes.get(time, ())), tuple(reads.get(time, ())))
        for time in sorted(makes.keys() | reads.keys())
    )


def place_tags(problem: LayoutProblem, guard: LimitGuard | None = None) -> Layout:
    """The allocator as a rule: tags lie end to end, above all fixed buffers. O(n log n)."""
    plan = allocate_tags(list(watched(steps_of_problem(problem), guard)), problem.sizes.tolist())
    return lay_end_to_end(problem, plan.tag_of, [0] * len(problem), plan.tag_bytes)


class _Allocator:
    def __init__(
        self, steps: Sequence[TagStep], sizes: Sequence[int], kept: Collection[int], last_consumer: bool
    ) -> None:
        self.steps = tuple(steps)
        self.sizes = sizes
        self.last_consumer = last_consumer
        self.consumers = Counter(value for step in steps for value in set(step.reads))
        self.consumers.update(set(kept))  # a consumer that never runs
        self.waiting = self.consumers.copy()
        self.tag_of = [NO_TAG] * len(sizes)
        self.tag_bytes: list[int] = []
        self.box: list[tuple[int, int]] = []  # (bytes, tag), ascending
        self.events: list[TagEvent] = []

    def run(self) -> TagPlan:
        for position, step in enumerate(self.steps):
            overwritten: set[int] = set()
            for value in step.makes:
                self._take(position, value, step, overwritten)
            for value in dict.fromkeys(step.reads):
                self.waiting[value] -= 1
                if not self.waiting[value] and value not in overwritten:
                    self._put_back(position, value)
            for value in step.makes:
                if not self.waiting[value]:
                    self._put_back(position, value)
        return TagPlan(self.steps, tuple(self.tag_of), tuple(self.tag_bytes), tuple(self.events))

    def _take(self, position: int, value: int, step: TagStep, overwritten: set[int]) -> None:
        counter = self.waiting if self.last_consumer else self.consumers
        for made, operand in step.overwrites:
            is_ours = made == value and operand not in overwritten and self.tag_of[operand] != NO_TAG
            if is_ours and counter[operand] == 1 and self.waiting[operand] == 1:
                overwritten.add(operand)
                self._give(position, TagAction.PASSED, self.tag_of[operand], value, operand)
                return
        if self.box:
            at = bisect_left(self.box, (self.sizes[value], NO_TAG))
            _, tag = self.box.pop(min(at, len(self.box) - 1))
            self._give(position, TagAction.TAKEN, tag, value)
            return
        self.tag_bytes.append(0)
        self._give(position, TagAction.MADE, len(self.tag_bytes) - 1, value)

    def _give(self, position: int, action: TagAction, tag: int, value: int, giver: int | None = None) -> None:
        self.tag_of[value] = tag
        self.tag_bytes[tag] = max(self.tag_bytes[tag], self.sizes[value])
        self.events.append(TagEvent(position, action, tag, value, giver))

    def _put_back(self, position: int, value: int) -> None:
        tag = self.tag_of[value]
        if tag != NO_TAG:
            insort(self.box, (self.tag_bytes[tag], tag))
            self.events.append(TagEvent(position, TagAction.BACK, tag, value))
