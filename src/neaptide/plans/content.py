"""Does a plan agree with itself: what can be said of a plan file without the program that it is for.

Whether its order is legal and its bytes are right is checked beside the program: `planner.check_plan`.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from neaptide.errors import PlanError
from neaptide.plans.records import STEADY, PlannedProgram
from neaptide.plans.shapes import ShapesProgram

if TYPE_CHECKING:
    from neaptide.plans.plan import Plan

_FIRST_STEP: Final = re.compile(r"first_[1-9][0-9]*")
# Sums of seconds in another order differ by rounding.
_ROUNDING: Final = 1e-9

_Faults: TypeAlias = Iterator[tuple[str, str]]
"""Fields that contradict another, below the field that is looked at, each with what goes on the sentence."""


def wrong_field(field: str, why: str) -> PlanError:
    """The refusal of a plan for one of its fields, such as `programs[0].saved`; `why` goes on the sentence."""
    return PlanError(
        f"the plan cannot be used: {field} {why}",
        next_step="make the plan again, or take an unchanged copy of its file",
    )


def check_content(plan: Plan) -> None:
    """Check that the fields of a plan fit each other. O(length of its sequences, times its logarithm).

    Names, versions, texts and the device are words for the reader, and are not checked.
    """
    for field, why in _faults(plan):
        raise wrong_field(field, why)


def operations_moved(order: Sequence[int]) -> int:
    """Nodes that are not in a longest ascending run of an order. O(n log n) (patience sorting)."""
    tails: list[int] = []
    for node in order:
        place = bisect_left(tails, node)
        tails[place : place + 1] = [node]
    return len(order) - len(tails)


def _faults(plan: Plan) -> _Faults:
    shapes = plan.all_shapes
    if shapes is not None and plan.programs:
        yield "programs", "is not empty, and all_shapes is there"
    place = "programs" if shapes is None else "all_shapes.programs"
    yield from _of_roles([entry.role for entry in plan.entries], place)
    if len(dict(plan.signature)) < len(plan.signature):
        yield "signature", "has a name twice"
    for number, asked in enumerate(() if shapes is None else shapes.asked):
        if asked.high is not None and asked.high < asked.low:
            yield f"all_shapes.asked[{number}].high", f"is {asked.high}, below {asked.low}"
    for number, entry in enumerate(plan.entries):
        found = _of_program(entry, plan) if isinstance(entry, PlannedProgram) else _of_shapes(entry)
        for field, why in found:
            yield f"{place}[{number}].{field}", why


def _of_roles(roles: Sequence[str], field: str) -> _Faults:
    if not roles:
        yield field, "is empty"
        return
    if roles[0] != STEADY:
        yield f"{field}[0].role", f"is {roles[0]!r}, and the first program is the {STEADY} one"
    for index, role in enumerate(roles[1:], 1):
        if not _FIRST_STEP.fullmatch(role) or role in roles[:index]:
            yield f"{field}[{index}].role", f"is {role!r}, which is unknown or there already"


def _of_program(program: PlannedProgram, plan: Plan) -> _Faults:
    if program.captured is not None and not program.captured.rewrites:
        yield "captured.rewrites", "is empty, and then nothing else was captured"
    if program.sequence and max(program.sequence) >= program.node_count:
        yield "sequence", f"has node {max(program.sequence)} of {program.node_count}"
    if len(set(program.sequence)) < program.node_count:
        yield "sequence", f"does not run all {program.node_count} nodes"
    if program.saved and not plan.atomic:
        yield "saved", "names storages, and only an atomic plan saves any"
    yield from _of_offloads(program)
    yield from _of_bytes(program)
    yield from _of_moves(program)
    yield from _of_seconds(program)
    yield from _of_words(program)
    yield from _of_copies(program)


def _of_offloads(program: PlannedProgram) -> _Faults:
    made = program.predictions
    # What a loop waits for its own copies is part of its seconds.
    in_bodies = any(order.offloads for order in program.bodies)
    if not program.offloads and ((made.host_bytes and not in_bodies) or made.exposed_seconds):
        yield "offloads", "is empty, and the plan predicts bytes on the host or waits for copies"
    if program.offloads and made.arena_bytes:
        yield "offloads", "is not empty, and what is stored and loaded has no layout yet"


def _of_bytes(program: PlannedProgram) -> _Faults:
    made = program.predictions
    # State may be on the host when a step begins, so that fewer bytes than all of the caller's are there.
    least = 0 if any(offload.begins_before for offload in program.offloads) else made.persistent_bytes
    in_order = made.baseline_peak_bytes
    for name, low, high in (
        ("peak_with_workspace_bytes", made.peak_bytes, made.peak_with_workspace_bytes),
        ("baseline_peak_with_workspace_bytes", in_order, made.baseline_peak_with_workspace_bytes),
        ("peak_bytes", least, made.peak_bytes),
        ("baseline_peak_bytes", made.persistent_bytes, in_order),
        ("arena_bytes", made.arena_lower_bound_bytes, made.arena_bytes),
    ):
        if high < low:
            yield f"predictions.{name}", f"is {high}, less than the {low} that are part of it"


def _of_moves(program: PlannedProgram) -> _Faults:
    moves, sequence = program.moves, program.sequence
    if moves.updates_moved_earlier != len(moves.moved):
        why = f"is {moves.updates_moved_earlier}, with {len(moves.moved)} names"
        yield "moves.updates_moved_earlier", why
    elsewhere = operations_moved(tuple(dict.fromkeys(sequence)))
    if moves.operations_moved != elsewhere:
        yield "moves.operations_moved", f"is {moves.operations_moved}, and in the sequence it is {elsewhere}"
    again = Counter(sequence)
    again.subtract(range(program.node_count))
    told = Counter(node for unit in moves.recomputations for node in unit.nodes)
    if any(count > again[node] for node, count in told.items()):
        yield "moves.recomputations", "has nodes that the sequence does not run again"


def _of_seconds(program: PlannedProgram) -> _Faults:
    made, before = program.predictions, program.recomputed_from_seconds
    added = made.seconds - made.exposed_seconds - before
    rounding = _ROUNDING * max(made.seconds, before)
    again = len(program.sequence) - program.node_count
    if added < -rounding or (again == 0 and added > rounding):
        why = f"is {made.seconds!r}, which does not go with {before!r} of program order"
        yield "predictions.seconds", why
    units = program.moves.recomputations
    told = math.fsum(unit.seconds for unit in units)
    is_told_whole = sum(len(unit.nodes) for unit in units) == again
    if told > added + rounding or (is_told_whole and told < added - rounding):
        yield "moves.recomputations", f"take {told!r} seconds together, and the plan adds {added!r}"


def _of_words(program: PlannedProgram) -> _Faults:
    """Of how the search ended, and of the trials."""
    made, ended, tried = program.predictions, program.termination, program.trials
    if ended.limit not in (None, "time", "work"):
        yield "termination.limit", f"is {ended.limit!r}, which is none"
    if ended.best is not None and ended.best not in (made.seconds, made.peak_with_workspace_bytes):
        yield "termination.best", f"is {ended.best!r}, neither the seconds nor the peak"
    if ended.bound is not None and (
        ended.best is None or ended.bound > ended.best * (1.0 + _ROUNDING) + _ROUNDING
    ):
        yield "termination.bound", f"is {ended.bound!r}, above what was found"
    if tried is None:
        return
    peak = made.peak_with_workspace_bytes
    if tried.chosen >= len(tried.rows):
        yield "trials.chosen", f"is {tried.chosen} of {len(tried.rows)}"
    elif tried.rows[tried.chosen].predicted_peak_bytes != peak:
        yield "trials.rows", f"has another predicted peak than {peak} where it was chosen"


def _of_copies(program: PlannedProgram) -> _Faults:
    found, made = program.copies, program.predictions
    if found is None:
        return
    if len(found.rows) != len(program.offloads):
        yield "copies.rows", f"are {len(found.rows)}, of {len(program.offloads)} offloads"
    end, rounding = made.seconds, _ROUNDING * made.seconds

    def is_backwards(times: Sequence[float]) -> bool:
        return any(later < earlier - rounding for earlier, later in pairwise((*times, end)))

    for index, (row, offload) in enumerate(zip(found.rows, program.offloads, strict=False)):
        if (row.out is None, row.back is None) != (offload.begins_before, offload.ends_after):
            yield f"copies.rows[{index}]", "has other copies than its offload"
        if is_backwards([time for copy in row.timed for time in (copy.issued, copy.start, copy.end)]):
            yield f"copies.rows[{index}]", "has times that do not follow one another in the step"
    if is_backwards([border for span in found.waits for border in span]):
        yield "copies.waits", "do not follow one another in the step"
    waited = math.fsum(b - a for a, b in found.waits)
    if abs(waited - made.exposed_seconds) > rounding:
        yield "copies.waits", f"take {waited!r} seconds, and the plan waits {made.exposed_seconds!r}"


def _of_shapes(program: ShapesProgram) -> _Faults:
    names = [dim.name for dim in program.dims]
    if len(set(names)) < len(names):
        yield "dims", "has a name twice"
    if any(dim.high is None or dim.high < dim.low for dim in program.dims):
        yield "dims", "has a range without an end, or one that ends before it begins"
    points, nodes = program.points, set(range(program.node_count))
    if (points is None) == (not program.plans):
        yield "points", "and plans exclude each other, and one of them must be there"
    if points is not None:
        if sorted(points.order) != sorted(nodes):
            yield "points.order", f"does not run each of {program.node_count} nodes once"
        if points.kept < 0:
            yield "points.found", f"is {points.found}, less than what was left out"
        if points.points > points.positions:
            yield "points.points", f"are {points.points} of {points.positions} positions"
    for number, plan in enumerate(program.plans):
        if set(plan.sequence) != nodes:
            yield f"plans[{number}].sequence", f"does not run all {len(nodes)} nodes"
    if any(node not in nodes for node, _ in program.workspace):
        yield "workspace", "names a node that the program does not have"
    yield from _of_peaks(program, set(names))


def _of_peaks(program: ShapesProgram, names: set[str]) -> _Faults:
    peaks = program.peaks
    if peaks.limit_bytes != program.budget_bytes:
        yield "peaks.limit_bytes", f"is {peaks.limit_bytes}, and the limit {program.budget_bytes}"
    ranges = {dim.name: dim for dim in program.dims}
    for number, curve in enumerate(peaks.curves):
        here = f"peaks.curves[{number}]"
        if {curve.dim, *curve.beside} != names:
            yield here, "is not of the dims of its program"
        counts = {len(curve.sizes), len(curve.baseline_peak_bytes), len(curve.planned_peak_bytes)}
        if len(counts) > 1:
            yield here, "has not one peak for each size"
        if curve.plans and (len(curve.plans) != len(curve.sizes) or max(curve.plans) >= len(program.plans)):
            yield f"{here}.plans", "is not one of its plans for each size"
        for name, size in [*((curve.dim, size) for size in curve.sizes), *curve.beside.items()]:
            if size not in ranges[name]:
                yield here, f"has {name} = {size}, outside of its range"
