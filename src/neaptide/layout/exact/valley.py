"""The valley search: packs a strip from the bottom up, and is complete: it fits, or it refutes the capacity.

The floor of a section is the lowest byte above everything that lies there. A *valley* is a run of equal floor between
higher neighbours. Something unplaced rests on it at a given section, or that section stays empty up to the next level
on which anything could rest. So a node picks one section of one valley and branches over both. Sections that nothing
can reach rise to the lower lip at once, and a section whose floor and unplaced bytes exceed its limit ends the branch
(layout.md, section 2.5; there in numpy with whole arrays for each node).

Sets of rectangles are bit masks, in the order in which they are tried. What can rest on a valley is one `and` of three
masks and depends on nothing else, so a node looks only at the valleys that the last move touched. States are
persistent: going back is dropping one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from operator import or_
from typing import Final, TypeAlias

from neaptide.layout.exact.strip import Decision, Strip, Verdict
from neaptide.outcome import LimitGuard

_WALL: Final = 1 << 80
"""The floor of sections where nothing is left to place: above all offsets."""
_MOST_REFUTED: Final = 1_000_000
"""States remembered by one search: some hundred megabytes."""


class SectionRule(Enum):
    """Which section is branched on. Each won on some of the hard instances."""

    OPTIONS = "fewest options by failures"
    TIGHT = "without slack first, then fewest options by failures"


@dataclass(frozen=True, slots=True)
class _Branching:
    """Where a valley is branched on."""

    score: tuple[float, float, int]
    section: int
    candidates: int  # what can rest there, identical once
    may_stay_empty: bool  # whether there is slack at that section


_Run: TypeAlias = tuple[int, int, int, _Branching | None]
"""A run of equal floor: first section, one past the last, floor, and how to branch on it once that is known."""
_Trail: TypeAlias = tuple[int, int, "_Trail"] | None
"""Placements so far: rectangle, offset, those before."""


@dataclass(frozen=True, slots=True)
class _Goal:
    """A time component that is still to be solved, or (`runs` is None) the end of one: its choices are dropped then."""

    runs: list[_Run] | None
    mask: int
    height: int
    rest: _Goal | None


@dataclass(slots=True)
class _Choice:
    """An open node: what is tried next, and what it started from."""

    runs: list[_Run]
    mask: int
    rest: _Goal | None
    trail: _Trail
    left: list[int]
    run: _Run
    branching: _Branching
    candidates: int
    may_stay_empty: bool
    key: tuple[int, tuple[tuple[int, int], ...]]


class ValleySearch:
    """One run of the valley search over a strip.

    Args:
        limits: by rectangle, the highest top.
        order: rectangles, the one to be tried first first; identical (same sections, size and limit) are neighbours.
        failures: by section, how often a search failed there; goes up while this one runs.
    """

    def __init__(
        self,
        strip: Strip,
        limits: Sequence[int],
        order: Sequence[int],
        rule: SectionRule,
        failures: list[float],
    ) -> None:
        self._order = order
        self._firsts = [strip.firsts[i] for i in order]
        self._lasts = [strip.lasts[i] for i in order]
        self._sizes = [strip.sizes[i] for i in order]
        self._limits = [limits[i] for i in order]
        self._rule = rule
        self._failures = failures
        self._sections = strip.sections
        self._totals = strip.totals()
        self._compile_masks()

    def _compile_masks(self) -> None:
        sections = self._sections
        begin, end = [0] * (sections + 1), [0] * (sections + 1)
        identical = 0
        spans = list(zip(self._firsts, self._lasts, self._sizes, self._limits, strict=True))
        for i, (first, last, _, _) in enumerate(spans):
            bit = 1 << i
            begin[first] |= bit
            end[last] |= bit
            if i and spans[i] == spans[i - 1]:
                identical |= bit
        for section in range(sections - 1, -1, -1):
            begin[section] |= begin[section + 1]
        for section in range(1, sections + 1):
            end[section] |= end[section - 1]
        everything = (1 << len(spans)) - 1
        self._from = begin
        """By section, what begins there or later."""
        self._until = end
        """By section, what ends there or earlier, exclusive ends."""
        self._cover = [everything & ~(b | e) for b, e in zip(begin[1:], end, strict=False)]
        """By section, what is live there."""
        self._cap = self._caps()
        self._grades = sorted(set(self._sizes))
        self._smaller = self._masks_below()
        self._identical = identical
        self._cross = [everything & ~(b | e) for b, e in zip(begin, end, strict=True)]
        """By section, what is live there and at the section before."""

    def _masks_below(self) -> list[int]:
        """By grade, what is smaller; and everything at the end."""
        of_size = dict.fromkeys(self._grades, 0)
        for i, size in enumerate(self._sizes):
            of_size[size] |= 1 << i
        return list(accumulate(of_size.values(), or_, initial=0))

    def _caps(self) -> list[int]:
        """By section, the highest limit of what is live there."""
        caps = [0] * self._sections
        members: dict[int, int] = {}
        for i, limit in enumerate(self._limits):
            members[limit] = members.get(limit, 0) | 1 << i
        for limit in sorted(members):
            caps = [
                limit if cover & members[limit] else cap for cover, cap in zip(self._cover, caps, strict=True)
            ]
        return caps

    def run(self, guard: LimitGuard, max_nodes: int | None = None) -> Decision:
        """Search until the answer is known, the guard says stop, or so many nodes are used.

        Time per node grows with the width of the touched valleys and with the number of valleys.
        """
        everything = (1 << len(self._order)) - 1
        totals = self._totals
        if any(total > cap for total, cap in zip(totals, self._cap, strict=True)):
            return Decision(Verdict.REFUTED, None, 0)
        stack: list[_Choice] = []
        refuted: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
        runs: list[_Run] = []
        for section in range(self._sections):
            if section and not everything & self._cross[section]:
                runs.append((section, section, _WALL, None))
            runs.append((section, section + 1, 0, None))
        if not self._settle(runs, 0, len(runs), everything, totals):
            return Decision(Verdict.REFUTED, None, 0)
        goal = self._split(runs, everything, None, 0)
        trail: _Trail = None
        left = totals
        nodes = 0
        while goal is not None:
            rest = goal.rest
            if goal.runs is None:
                # A solved component stays solved whatever happens to the others: never go back into it.
                del stack[goal.height :]
                goal = rest
                continue
            nodes += 1
            if (max_nodes is not None and nodes > max_nodes) or guard.exhausted() is not None:
                return Decision(Verdict.OUT_OF_BUDGET, None, nodes)
            key = (goal.mask, tuple([(run[0], run[2]) for run in goal.runs]))
            if key not in refuted:
                stack.append(self._open(goal, trail, left, key))
            while True:
                if not stack:
                    return Decision(Verdict.REFUTED, None, nodes)
                choice = stack[-1]
                moved = self._advance(choice)
                if moved is not None:
                    moved_runs, mask, left, trail = moved
                    goal = self._split(moved_runs, mask, choice.rest, len(stack))
                    break
                if not choice.candidates and not choice.may_stay_empty:
                    stack.pop()
                    self._failures[choice.branching.section] += 1
                    if len(refuted) < _MOST_REFUTED:
                        refuted.add(choice.key)
        offsets = [0] * len(self._order)
        while trail is not None:
            index, offset, trail = trail
            offsets[self._order[index]] = offset
        return Decision(Verdict.FITS, tuple(offsets), nodes)

    def _open(
        self, goal: _Goal, trail: _Trail, left: list[int], key: tuple[int, tuple[tuple[int, int], ...]]
    ) -> _Choice:
        """Choose where to branch."""
        assert goal.runs is not None
        best: _Branching | None = None
        where: _Run | None = None
        for run in goal.runs:
            known = run[3]
            if known is not None and (best is None or known.score < best.score):
                best, where = known, run
        assert best is not None
        assert where is not None  # the lowest run is a valley
        return _Choice(
            goal.runs,
            goal.mask,
            goal.rest,
            trail,
            left,
            where,
            best,
            best.candidates,
            best.may_stay_empty,
            key,
        )

    def _advance(self, choice: _Choice) -> tuple[list[_Run], int, list[int], _Trail] | None:
        """The state after the next alternative of a node; None when it fails or there is none."""
        first, last, floor, _ = choice.run
        if choice.candidates:
            bit = choice.candidates & -choice.candidates
            choice.candidates ^= bit
            index = bit.bit_length() - 1
            begin, end, size = self._firsts[index], self._lasts[index], self._sizes[index]
            top = floor + size
            if top > self._limits[index]:
                return None
            left = choice.left.copy()
            for section in range(begin, end):
                left[section] -= size
            mask = choice.mask ^ bit
            new: list[_Run] = [(first, begin, floor, None)] if first < begin else []
            now = begin
            for section in range(begin + 1, end):
                if not mask & self._cross[section]:
                    new += ((now, section, top, None), (section, section, _WALL, None))
                    now = section
            new.append((now, end, top, None))
            if end < last:
                new.append((end, last, floor, None))
            trail: _Trail = (index, floor, choice.trail)
        elif choice.may_stay_empty:
            choice.may_stay_empty = False
            section = choice.branching.section
            level = self._next_level(choice)
            if level + choice.left[section] > self._cap[section]:
                return None
            mask, left, trail = choice.mask, choice.left, choice.trail
            new = [(first, section, floor, None)] if first < section else []
            new.append((section, section + 1, level, None))
            if section + 1 < last:
                new.append((section + 1, last, floor, None))
        else:
            return None
        at = choice.runs.index(choice.run)
        runs = [*choice.runs[:at], *new, *choice.runs[at + 1 :]]
        if not self._settle(runs, at, at + len(new), mask, left):
            return None
        return runs, mask, left, trail

    def _next_level(self, choice: _Choice) -> int:
        """The lowest level above the valley on which the lowest unplaced rectangle over the section could rest.

        What cannot rest on the valley rests on its highest floor or higher. What could, but does not, rests on
        something unplaced that is not over the section, since nothing unplaced lies below it there.
        """
        first, last, floor, _ = choice.run
        over = choice.mask & self._cover[choice.branching.section]
        here = over & self._from[first] & self._until[last]
        level = self._lip_of_any(choice, over ^ here)
        members = _indices(here)
        begin = min([self._firsts[i] for i in members])
        end = max([self._lasts[i] for i in members])
        beside = choice.mask & ~over & ~self._from[end] & ~self._until[begin]
        beside &= self._smaller[bisect_left(self._grades, level - floor)]
        if not beside:
            return level
        base = choice.runs[0][0]
        floors: list[int] = []
        for run in choice.runs:
            floors += [run[2]] * (run[1] - run[0])
        for i in _indices(beside):
            size = self._sizes[i]
            if floor + size < level:
                level = min(level, max(floors[self._firsts[i] - base : self._lasts[i] - base]) + size)
        return level

    def _lip_of_any(self, choice: _Choice, members: int) -> int:
        """The lowest level to which the valley must be filled until any of these fits on it; widens it lip by lip."""
        runs = choice.runs
        left = right = runs.index(choice.run)
        while members:
            before = runs[left - 1][2] if left else _WALL
            after = runs[right + 1][2] if right + 1 < len(runs) else _WALL
            level = min(before, after)
            if level == _WALL:
                break
            while left and runs[left - 1][2] <= level:
                left -= 1
            while right + 1 < len(runs) and runs[right + 1][2] <= level:
                right += 1
            if members & self._from[runs[left][0]] & self._until[runs[right][1]]:
                return level
        return _WALL

    def _settle(self, runs: list[_Run], at: int, stop: int, mask: int, left: list[int]) -> bool:
        """Merge runs of equal floor, raise what nothing can reach, and find where to branch on each new valley.

        Returns:
            False when a section has more to hold than its limit allows.
        """
        at = max(0, at - 1)
        stop += 1
        while at < stop and at < len(runs):
            first, last, floor, known = runs[at]
            if at + 1 < len(runs) and runs[at + 1][2] == floor and floor != _WALL:
                runs[at : at + 2] = [(first, runs[at + 1][1], floor, None)]
                stop = max(stop - 1, at + 2)
                at = max(0, at - 1)
                continue
            before = runs[at - 1][2] if at else _WALL
            after = runs[at + 1][2] if at + 1 < len(runs) else _WALL
            if known is not None or not before > floor < after:
                at += 1
                continue
            raised, branching = self._survey(first, last, floor, mask, left)
            if not raised:
                runs[at] = (first, last, floor, branching)
                at += 1
                continue
            lip = min(before, after)
            new: list[_Run] = []
            now = first
            for section in raised:
                if section > now:
                    new.append((now, section, floor, None))
                level = _WALL
                if mask & self._cover[section]:
                    level = lip
                    if lip + left[section] > self._cap[section]:
                        self._failures[section] += 1
                        return False
                new.append((section, section + 1, level, None))
                now = section + 1
            if now < last:
                new.append((now, last, floor, None))
            runs[at : at + 1] = new
            stop = max(stop + len(new) - 1, at + len(new) + 1)
            at = max(0, at - 1)
        return True

    def _survey(
        self, first: int, last: int, floor: int, mask: int, left: list[int]
    ) -> tuple[list[int], _Branching | None]:
        """Sections of a valley that no candidate covers, and the best section to branch on if there are none."""
        candidates = mask & self._from[first] & self._until[last]
        resting = [candidates & cover for cover in self._cover[first:last]]
        if not all(resting):
            return [section for section, here in enumerate(resting, first) if not here], None
        identical, rule = self._identical, self._rule
        columns = (resting, self._cap[first:last], left[first:last], self._failures[first:last])
        best: tuple[float, float, int] | None = None
        where = chosen = 0
        section = first
        for all_here, cap, waiting, failures in zip(*columns, strict=True):
            here = all_here & ~(identical & all_here << 1)
            slack = cap - floor - waiting
            options = here.bit_count() + (slack > 0)
            score: tuple[float, float, int]
            if rule is SectionRule.OPTIONS:
                score = (options / (1 + failures), slack, section)
            else:
                score = (slack > 0, options / (1 + failures), slack)
            if best is None or score < best:
                best, where, chosen = score, section, here
            section += 1
        assert best is not None  # a run has a section
        return [], _Branching(best, where, chosen, self._cap[where] - floor - left[where] > 0)

    def _split(self, runs: list[_Run], mask: int, rest: _Goal | None, height: int) -> _Goal | None:
        """The time components between walls as goals, with a mark after each unless there is only one."""
        parts: list[list[_Run]] = [[]]
        for run in runs:
            if run[2] == _WALL:
                parts.append([])
            else:
                parts[-1].append(run)
        parts = [part for part in parts if part]
        goal = rest
        for part in reversed(parts):
            inside = mask & self._from[part[0][0]] & self._until[part[-1][1]]
            goal = _Goal(part, inside, 0, goal if len(parts) == 1 else _Goal(None, 0, height, goal))
        return goal


def _indices(mask: int) -> list[int]:
    """The members of a bit mask, ascending."""
    members = []
    while mask:
        bit = mask & -mask
        members.append(bit.bit_length() - 1)
        mask ^= bit
    return members
