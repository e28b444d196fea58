"""Does a plan for all shapes agree with itself. Legality and bytes are judged beside the program when it is loaded."""

from __future__ import annotations

from neaptide.plans.shapes_record import PointsRecord, ShapesProgram, ShapesRecord
from neaptide.plans.wrong_field import wrong_field


def check_shapes(record: ShapesRecord) -> None:
    """Check that the fields of a plan for all shapes fit each other. O(length of its sequences).

    Roles are checked with those of all plans; names, relations and notes are words for the reader.

    Raises:
        PlanError: naming the first field that contradicts another.
    """
    for number, asked in enumerate(record.asked):
        if asked.high is not None and asked.high < asked.low:
            raise wrong_field(f"all_shapes.asked[{number}].high", f"is {asked.high}, below {asked.low}")
    for number, program in enumerate(record.programs):
        _check_program(program, f"all_shapes.programs[{number}]")


def _check_program(program: ShapesProgram, field: str) -> None:
    names = [dim.name for dim in program.dims]
    if len(set(names)) < len(names):
        raise wrong_field(f"{field}.dims", "has a name twice")
    if any(dim.high < dim.low for dim in program.dims):
        raise wrong_field(f"{field}.dims", "has a range that ends before it begins")
    if (program.points is None) == (not program.plans):
        raise wrong_field(f"{field}.points", "and plans exclude each other, and one of them must be there")
    nodes = set(range(program.node_count))
    if program.points is not None:
        _check_points(program.points, program.node_count, f"{field}.points")
    for number, plan in enumerate(program.plans):
        if set(plan.sequence) != nodes:
            raise wrong_field(f"{field}.plans[{number}].sequence", f"does not run all {len(nodes)} nodes")
    if any(node not in nodes for node, _ in program.workspace):
        raise wrong_field(f"{field}.workspace", "names a node that the program does not have")
    _check_peaks(program, set(names), f"{field}.peaks")


def _check_points(points: PointsRecord, node_count: int, field: str) -> None:
    if sorted(points.order) != list(range(node_count)):
        raise wrong_field(f"{field}.order", f"does not run each of {node_count} nodes once")
    if points.kept < 0:
        raise wrong_field(f"{field}.found", f"is {points.found}, less than what was left out")
    if points.points > points.positions:
        raise wrong_field(f"{field}.points", f"are {points.points} of {points.positions} positions")


def _check_peaks(program: ShapesProgram, names: set[str], field: str) -> None:
    peaks = program.peaks
    if peaks.limit_bytes != program.budget_bytes:
        raise wrong_field(
            f"{field}.limit_bytes", f"is {peaks.limit_bytes}, and the limit {program.budget_bytes}"
        )
    ranges = {dim.name: dim for dim in program.dims}
    for number, curve in enumerate(peaks.curves):
        here = f"{field}.curves[{number}]"
        if {curve.dim, *curve.beside} != names:
            raise wrong_field(here, "is not of the dims of its program")
        counts = {len(curve.sizes), len(curve.baseline_peak_bytes), len(curve.planned_peak_bytes)}
        if len(counts) > 1:
            raise wrong_field(here, "has not one peak for each size")
        if curve.plans and (len(curve.plans) != len(curve.sizes) or max(curve.plans) >= len(program.plans)):
            raise wrong_field(f"{here}.plans", "is not one of its plans for each size")
        found = [*((curve.dim, size) for size in curve.sizes), *curve.beside.items()]
        for name, size in found:
            if not ranges[name].low <= size <= ranges[name].high:
                raise wrong_field(here, f"has {name} = {size}, outside of its range")
