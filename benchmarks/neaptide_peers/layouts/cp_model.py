"""All layouts within a capacity as a constraint model for CP-SAT.

A buffer is a rectangle, fixed in time and movable in space (several, if it has gaps), and one `NoOverlap2D` keeps
rectangles apart. Time is cut down to the steps at which a set of live buffers is complete, and bytes are counted in
units of their greatest common divisor, both without loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from neaptide.layout.problem import LayoutProblem, Part
from neaptide.layout.result import Layout
from neaptide_peers.cp_sat.builder import CpModelBuilder
from neaptide_peers.cp_sat.model import CpModel, Linear, value_of


def unit_bytes(problem: LayoutProblem) -> int:
    """Bytes in whose multiples an arena may be laid out without loss.

    The greatest common divisor of all sizes, fixed offsets, windows of gaps and those alignments that do not divide
    it: rounding every offset of a layout down to a multiple keeps it a layout, since an alignment either divides the
    unit or is a multiple of it.
    """
    numbers = [number for part in _parts(problem) for number in (part.low, part.high)]
    numbers += [buffer.nbytes for buffer in problem.buffers]
    numbers += [buffer.offset for buffer in problem.buffers if buffer.offset is not None]
    unit = gcd(*numbers)
    for alignment in {buffer.alignment for buffer in problem.buffers}:
        if unit % alignment:
            unit = gcd(unit, alignment)
    return unit or 1


def compressed_steps(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Half-open spans of time, renumbered to the steps that matter: the maximal sets of spans that meet.

    Two spans meet afterwards exactly if they met before. Such a set is complete when a span ends after another has
    started (the maximal cliques of an interval graph). O(n log n).
    """
    events = [(end, 0, k) for k, (_, end) in enumerate(spans)]
    events += [(start, 1, k) for k, (start, _) in enumerate(spans)]
    begin, close = [0] * len(spans), [0] * len(spans)
    step, is_open = 0, False
    for _, starts, k in sorted(events):
        if starts:
            begin[k], is_open = step, True
        else:
            step, is_open = step + is_open, False
            close[k] = step
    return list(zip(begin, close, strict=True))


@dataclass(frozen=True, slots=True)
class LayoutModel:
    """A constraint model of layouts.

    Attributes:
        model: its objective, if any, is the arena in units.
        unit: bytes.
        offsets: by buffer, in units.
    """

    model: CpModel
    unit: int
    offsets: tuple[Linear, ...]

    def layout(self, problem: LayoutProblem, values: tuple[int, ...]) -> Layout:
        """The layout that a solution stands for."""
        return Layout.of(problem, tuple(self.unit * value_of(offset, values) for offset in self.offsets))


def layout_model(
    problem: LayoutProblem,
    capacity_bytes: int,
    *,
    lower_bytes: int | None = None,
    hint: Layout | None = None,
    with_cumulative: bool = False,
) -> LayoutModel:
    """Model the layouts of at least one buffer within a capacity. O(n log n).

    Args:
        problem: what is to be placed.
        capacity_bytes: of the arena; it holds each buffer alone.
        lower_bytes: a lower bound of the arena, which is minimised; None where every layout will do.
        hint: offsets to start from.
        with_cumulative: add the redundant constraint that at every offset the lifetimes there fit into the whole time.
    """
    builder = CpModelBuilder()
    unit = unit_bytes(problem)
    capacity = capacity_bytes // unit
    offsets = []
    for index, buffer in enumerate(problem.buffers):
        if buffer.offset is not None:
            offsets.append(Linear(constant=buffer.offset // unit))
            continue
        stride = max(1, buffer.alignment // unit)
        variable = builder.integer(0, (capacity - buffer.nbytes // unit) // stride)
        offsets.append(Linear.of(variable, stride))
        if hint is not None:
            builder.hint(variable, hint.offsets[index] // unit // stride)
    if lower_bytes is not None:
        top = builder.integer(-(-lower_bytes // unit), capacity)
        for buffer, offset in zip(problem.buffers, offsets, strict=True):
            rest = buffer.nbytes // unit + offset.constant
            builder.require(((1, top), *((-factor, v) for factor, v in offset.terms)), at_least=rest)
        builder.minimise(Linear.of(top))
        if hint is not None:
            builder.hint(top, hint.arena_bytes // unit)
    parts = _parts(problem)
    steps = compressed_steps([(part.start, part.end) for part in parts])
    owners = [index for index, buffer in enumerate(problem.buffers) for _ in buffer.parts()]
    times = [builder.interval(Linear(constant=start), end - start) for start, end in steps]
    places = [
        builder.interval(
            Linear(offsets[owner].terms, offsets[owner].constant + part.low // unit),
            (part.high - part.low) // unit,
        )
        for owner, part in zip(owners, parts, strict=True)
    ]
    builder.no_overlap_2d(times, places)
    if with_cumulative:
        durations = [end - start for start, end in steps]
        builder.cumulative(places, durations, Linear(constant=max(end for _, end in steps)))
    return LayoutModel(builder.build(), unit, tuple(offsets))


def _parts(problem: LayoutProblem) -> list[Part]:
    return [part for buffer in problem.buffers for part in buffer.parts()]
