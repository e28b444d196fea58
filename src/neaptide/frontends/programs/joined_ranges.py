"""One program for sizes on both sides of a bound: the step is traced again past it, and joined where it is the same.

Torch branches on a size of 1, and kernels on other sizes, in nearly every step; mostly both branches are one program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from neaptide.errors import CaptureError
from neaptide.frontends.dims.dynamic_dims import SMALLEST, DynamicDim, examples
from neaptide.frontends.programs.captured import CapturedProgram
from neaptide.frontends.programs.same_program import first_difference
from neaptide.frontends.programs.step_programs import Capture, Programs
from neaptide.frontends.recording.traced_sizes import SizeFacts
from neaptide.symbolic.dims import Dim
from neaptide.symbolic.ranges import Interval, bound
from neaptide.symbolic.size_expr import SizeExpr

_MOST_BOUNDS = 2  # that are looked past at one end of a range: each costs a capture


def joined_programs(capture: Capture) -> Programs:
    """The programs of a step, for ranges that are as wide as one program holds for.

    Where a range ends before it was asked to, the step is traced with the next size. Where that gives other programs,
    the range stays, and the note says where they differ first.
    """
    programs, changing = capture.programs()
    for dim in capture.request.dims:
        wanted = Dim(dim.name, max(dim.low, SMALLEST), dim.high)
        programs = _widened(capture, (programs, changing), wanted)
    return programs, changing


def _widened(capture: Capture, found: Programs, wanted: Dim) -> list[CapturedProgram]:
    """The programs with the range of one dim as near to the wanted one as they are the same."""
    programs, changing = found
    name = wanted.name
    if any(program.sizes.asked.get(name) != SizeExpr.dim(name) for program in programs):
        return programs
    for next_size in (_below, _above):
        for _ in range(_MOST_BOUNDS):
            size = next_size([_range(program.sizes, name) for program in programs], wanted)
            if size is None:
                break
            joined = _joined_at(capture, (programs, changing), name, size)
            if isinstance(joined, str):
                told = f"at {name} = {size} it is another program: {joined}"
                programs = [_with_sizes(p, p.sizes.with_remark(name, told)) for p in programs]
                break
            programs = joined
    return programs


def _joined_at(capture: Capture, found: Programs, name: str, size: int) -> list[CapturedProgram] | str:
    """The programs with one more part of a range, that which holds for a size; or why they are others there."""
    programs, changing = found
    dims = _dims_at(capture.request.dims, programs, name, size)
    if dims is None:
        return "another dim that is tied to it is not asked to have its size"
    there = capture.with_dims(dims)
    try:
        others, also_changing = there.programs()
    except CaptureError as refusal:
        return ", ".join(text for text in (refusal.what, refusal.why, refusal.where) if text)
    if len(others) != len(programs) or also_changing != changing:
        return "other gradients or optimizer state exist"
    binding = {} if size > SMALLEST else {name: size}
    for program, other in zip(programs, others, strict=True):
        difference = first_difference(program, other, binding)
        if difference is not None:
            return difference
    for dim in programs[-1].sizes.dims:
        if dim.name != name:
            others = _widened(there, (others, changing), dim)
    joined = []
    for program, other in zip(programs, others, strict=True):
        facts = _joined_facts(program.sizes, other.sizes, name, size)
        if isinstance(facts, str):
            return facts
        joined.append(_with_sizes(program, facts))
    return joined


def _range(facts: SizeFacts, name: str) -> Dim:
    return next(dim for dim in facts.dims if dim.name == name)


def _below(ranges: Sequence[Dim], wanted: Dim) -> int | None:
    """The next smaller size than one of the ranges has, where that is wanted."""
    low = max(dim.low for dim in ranges)
    return low - 1 if low > wanted.low else None


def _above(ranges: Sequence[Dim], wanted: Dim) -> int | None:
    """The next larger size than one of the ranges has, where that is wanted."""
    ends = [dim.high for dim in ranges if dim.high is not None]
    if not ends or (wanted.high is not None and min(ends) >= wanted.high):
        return None
    return min(ends) + 1


def _dims_at(
    dims: Sequence[DynamicDim], programs: Sequence[CapturedProgram], name: str, size: int
) -> tuple[DynamicDim, ...] | None:
    """The dims for a trace with one size in place of a dim's example; None where one of them cannot have its size.

    Dims that the programs found to be made of that one follow it. A size of 1 is a number of the trace.
    """
    example = {**examples(dims), name: size}
    made = []
    for dim in dims:
        known = programs[-1].sizes.asked[dim.name]
        if name not in known.dims():
            made.append(dim)
            continue
        its = known.evaluate(example)
        if its < max(dim.low, SMALLEST) or (dim.high is not None and its > dim.high):
            return None
        is_number = its == SMALLEST
        made.append(replace(dim, low=its, high=its, size=its) if is_number else replace(dim, size=its))
    return tuple(made)


def _joined_facts(facts: SizeFacts, other: SizeFacts, name: str, size: int) -> SizeFacts | str:
    """Facts for the sizes of both, where they lie side by side; else why they do not, in words."""
    held = _range(facts, name)
    added = _range(other, name) if name in {dim.name for dim in other.dims} else Dim(name, size, size)
    if size in held:
        return facts
    high = None if held.high is None or added.high is None else max(held.high, added.high)
    if not (_reaches(held, added) and _reaches(added, held)):
        return f"it holds for {added} there"
    ranges = {dim.name: Interval(dim.low, dim.high) for dim in facts.dims}
    ranges[name] = Interval(added.low, added.high)
    here = {name: SizeExpr.const(size)} if added.low == added.high else {}
    reason = next(_unmet(facts, other, ranges, here), None)
    return reason or facts.with_range(Dim(name, min(held.low, added.low), high))


def _unmet(
    facts: SizeFacts, other: SizeFacts, ranges: Mapping[str, Interval], here: Mapping[str, SizeExpr]
) -> Iterator[str]:
    """What the other program asks of the sizes in these ranges and the first does not promise."""
    for asked, size in facts.asked.items():
        if other.asked[asked] != size.substitute(here):
            yield f"{asked} is {other.asked[asked]} there"
    for dim in other.dims:
        span = ranges[dim.name]
        low, high = span.low or 0, span.high
        if low not in dim or (high not in dim if high is not None else dim.high is not None):
            yield f"it holds for {dim} there"
    promised = {(r.left.substitute(here), r.right.substitute(here)) for r in facts.relations}
    for relation in other.relations:
        if (relation.left, relation.right) not in promised:
            yield f"it holds where {relation} there"
    kept = {(c.left.substitute(here), c.sign, c.right.substitute(here)) for c in facts.conditions}
    for condition in other.conditions:
        difference = bound(condition.left - condition.right, ranges)
        is_proved = (
            0 not in difference
            if condition.sign == "!="
            else difference.high is not None and difference.high <= 0
        )
        if not is_proved and (condition.left, condition.sign, condition.right) not in kept:
            yield f"it holds where {condition} there"


def _reaches(one: Dim, other: Dim) -> bool:
    """Whether the first range does not end more than one size in front of the second."""
    return one.high is None or other.low <= one.high + 1


def _with_sizes(program: CapturedProgram, sizes: SizeFacts) -> CapturedProgram:
    """The program for other sizes; notes follow."""
    before = set(program.sizes.notes)
    told = (*(text for text in program.rewrites if text not in before), *sizes.notes)
    return replace(program, graph=replace(program.graph, dims=sizes.dims), rewrites=told, sizes=sizes)
