"""Does a plan agree with itself: what can be said of a plan file without the program that it is for.

Whether its order is legal and its bytes are right is judged beside the program: `planner.judge_plan`.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from neaptide.errors import PlanError
from neaptide.outcome import TerminationReason
from neaptide.plans.shapes_content import check_shapes
from neaptide.plans.wrong_field import wrong_field

if TYPE_CHECKING:
    from neaptide.plans.plan import Plan, PlannedProgram

STEADY: Final = "steady"
_FIRST_STEP: Final = re.compile(r"first_[1-9][0-9]*")
_LIMITS: Final = (None, "time", "work")
# Sums of seconds in another order differ by rounding.
_ROUNDING: Final = 1e-9


def check_content(plan: Plan) -> None:
    """Check that the fields of a plan fit each other. O(length of its sequences, times its logarithm).

    Names, versions, texts and the device are words for the reader, and are not judged.

    Raises:
        PlanError: naming the first field that contradicts another.
    """
    shapes = plan.all_shapes
    if shapes is not None and plan.programs:
        raise wrong_field("programs", "is not empty, and all_shapes is there")
    if shapes is None:
        _check_roles([program.role for program in plan.programs], "programs")
    else:
        _check_roles([program.role for program in shapes.programs], "all_shapes.programs")
        check_shapes(shapes)
    if len(dict(plan.signature)) < len(plan.signature):
        raise wrong_field("signature", "has a name twice")
    for index, program in enumerate(plan.programs):
        _Content(program, f"programs[{index}]", is_atomic=plan.atomic).check()


def _check_roles(roles: Sequence[str], field: str) -> None:
    if not roles:
        raise wrong_field(field, "is empty")
    if roles[0] != STEADY:
        raise wrong_field(f"{field}[0].role", f"is {roles[0]!r}, and the first program is the {STEADY} one")
    for index, role in enumerate(roles[1:], 1):
        if not _FIRST_STEP.fullmatch(role) or role in roles[:index]:
            raise wrong_field(f"{field}[{index}].role", f"is {role!r}, which is unknown or there already")


def operations_moved(order: Sequence[int]) -> int:
    """Nodes that are not in a longest ascending run of an order. O(n log n) (patience sorting)."""
    tails: list[int] = []
    for node in order:
        place = bisect_left(tails, node)
        tails[place : place + 1] = [node]
    return len(order) - len(tails)


class _Content:
    """One program of a plan; `field` is what it is called there."""

    def __init__(self, program: PlannedProgram, field: str, *, is_atomic: bool) -> None:
        self.program = program
        self.field = field
        self.is_atomic = is_atomic

    def check(self) -> None:
        self._check_rewrites()
        self._check_sequence()
        self._check_stays()
        self._check_bytes()
        self._check_parts()
        self._check_moves()
        self._check_seconds()
        self._check_termination()
        self._check_trials()
        self._check_copies()

    def _wrong(self, name: str, why: str) -> PlanError:
        return wrong_field(f"{self.field}.{name}", why)

    def _check_rewrites(self) -> None:
        captured = self.program.captured
        if captured is not None and not captured.rewrites:
            raise self._wrong("captured.rewrites", "is empty, and then nothing else was captured")

    def _check_sequence(self) -> None:
        program = self.program
        if program.sequence and max(program.sequence) >= program.node_count:
            raise self._wrong("sequence", f"has node {max(program.sequence)} of {program.node_count}")
        if len(set(program.sequence)) < program.node_count:
            raise self._wrong("sequence", f"does not run all {program.node_count} nodes")
        if program.saved and not self.is_atomic:
            raise self._wrong("saved", "names storages, and only an atomic plan saves any")

    def _check_stays(self) -> None:
        program, made = self.program, self.program.predictions
        # What a loop waits for its own copies is part of its seconds.
        in_bodies = any(order.stays for order in program.bodies)
        if not program.stays and ((made.host_bytes and not in_bodies) or made.exposed_seconds):
            raise self._wrong(
                "stays", "is empty, and the plan predicts bytes on the host or waits for copies"
            )
        if program.stays and made.arena_bytes:
            raise self._wrong("stays", "is not empty, and what is stored and loaded has no layout yet")

    def _check_bytes(self) -> None:
        made = self.program.predictions
        # State may be on the host when a step begins, so that fewer bytes than all of the caller's are there.
        least = 0 if any(stay.begins_before for stay in self.program.stays) else made.resident_bytes
        for name, low, high in (
            ("peak_with_workspace_bytes", made.peak_bytes, made.peak_with_workspace_bytes),
            (
                "baseline_peak_with_workspace_bytes",
                made.baseline_peak_bytes,
                made.baseline_peak_with_workspace_bytes,
            ),
            ("peak_bytes", least, made.peak_bytes),
            ("baseline_peak_bytes", made.resident_bytes, made.baseline_peak_bytes),
            ("arena_bytes", made.arena_lower_bound_bytes, made.arena_bytes),
        ):
            if high < low:
                raise self._wrong(
                    f"predictions.{name}", f"is {high}, less than the {low} that are part of it"
                )

    def _check_parts(self) -> None:
        found = self.program.parts
        if found is None or not found.most_parts_lower_bound_bytes:
            return
        if found.most_parts_lower_bound_bytes < found.lower_bound_bytes:
            raise self._wrong(
                "parts.most_parts_lower_bound_bytes",
                f"is {found.most_parts_lower_bound_bytes}, below the {found.lower_bound_bytes} of any number of parts",
            )
        if found.most_parts < 2:
            raise self._wrong("parts.most_parts", f"is {found.most_parts}, and there is a bound for it")

    def _check_moves(self) -> None:
        program, moves = self.program, self.program.moves
        if moves.updates_moved_earlier != len(moves.moved):
            raise self._wrong(
                "moves.updates_moved_earlier",
                f"is {moves.updates_moved_earlier}, with {len(moves.moved)} names",
            )
        elsewhere = operations_moved(tuple(dict.fromkeys(program.sequence)))
        if moves.operations_moved != elsewhere:
            raise self._wrong(
                "moves.operations_moved",
                f"is {moves.operations_moved}, and in the sequence it is {elsewhere}",
            )
        again = Counter(program.sequence)
        again.subtract(range(program.node_count))
        told = Counter(node for unit in moves.recomputations for node in unit.nodes)
        if any(count > again[node] for node, count in told.items()):
            raise self._wrong("moves.recomputations", "has nodes that the sequence does not run again")

    def _check_seconds(self) -> None:
        program, made = self.program, self.program.predictions
        before = program.recomputed_from_seconds
        added = made.seconds - made.exposed_seconds - before
        rounding = _ROUNDING * max(made.seconds, before)
        again = len(program.sequence) - program.node_count
        if added < -rounding or (again == 0 and added > rounding):
            raise self._wrong(
                "predictions.seconds",
                f"is {made.seconds!r}, which does not go with {before!r} of program order",
            )
        units = program.moves.recomputations
        told = math.fsum(unit.seconds for unit in units)
        is_told_whole = sum(len(unit.nodes) for unit in units) == again
        if told > added + rounding or (is_told_whole and told < added - rounding):
            raise self._wrong(
                "moves.recomputations", f"take {told!r} seconds together, and the plan adds {added!r}"
            )

    def _check_termination(self) -> None:
        made, ended = self.program.predictions, self.program.termination
        if ended.reason not in set(TerminationReason):
            raise self._wrong("termination.reason", f"is {ended.reason!r}, which is none")
        if ended.limit not in _LIMITS:
            raise self._wrong("termination.limit", f"is {ended.limit!r}, which is none")
        if ended.best is not None and ended.best not in (made.seconds, made.peak_with_workspace_bytes):
            raise self._wrong("termination.best", f"is {ended.best!r}, neither the seconds nor the peak")
        if ended.bound is not None and (
            ended.best is None or ended.bound > ended.best * (1.0 + _ROUNDING) + _ROUNDING
        ):
            raise self._wrong("termination.bound", f"is {ended.bound!r}, above what was found")

    def _check_trials(self) -> None:
        found = self.program.trials
        if found is None:
            return
        if found.chosen >= len(found.rows):
            raise self._wrong("trials.chosen", f"is {found.chosen} of {len(found.rows)}")
        peak = self.program.predictions.peak_with_workspace_bytes
        if found.rows[found.chosen].predicted_peak_bytes != peak:
            raise self._wrong("trials.rows", f"has another predicted peak than {peak} where it was chosen")

    def _check_copies(self) -> None:
        program, found = self.program, self.program.copies
        if found is None:
            return
        if len(found.rows) != len(program.stays):
            raise self._wrong("copies.rows", f"are {len(found.rows)}, of {len(program.stays)} stays")
        end, rounding = program.predictions.seconds, _ROUNDING * program.predictions.seconds
        for index, row in enumerate(found.rows):
            stay = program.stays[index]
            if (row.out is None, row.back is None) != (stay.begins_before, stay.ends_behind):
                raise self._wrong(f"copies.rows[{index}]", "has other copies than its stay")
            times = (*(time for copy in row.timed for time in (copy.issued, copy.start, copy.end)), end)
            if any(later < earlier - rounding for earlier, later in pairwise(times)):
                raise self._wrong(
                    f"copies.rows[{index}]", "has times that do not follow one another in the step"
                )
        borders = [border for span in found.waits for border in span]
        if any(later < earlier - rounding for earlier, later in pairwise((*borders, end))):
            raise self._wrong("copies.waits", "do not follow one another in the step")
        waited, exposed = math.fsum(b - a for a, b in found.waits), program.predictions.exposed_seconds
        if abs(waited - exposed) > rounding:
            raise self._wrong("copies.waits", f"take {waited!r} seconds, and the plan waits {exposed!r}")
