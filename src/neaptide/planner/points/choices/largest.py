"""The largest shapes of a program that stay within so many bytes, from its symbolic sizes alone."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from neaptide.planner.points.plan import Decisions
from neaptide.planner.points.shaped import ShapedProgram
from neaptide.symbolic.dims import Dim
from neaptide.symbolic.relations import SizeRelations
from neaptide.symbolic.size_expr import SizeExpr

Shape: TypeAlias = Mapping[str, int]


def grows_with(shaped: ShapedProgram, dim: str, dims: Sequence[Dim]) -> bool:
    """Whether a larger dim is proved to never lower the bytes at any position of a program, over the ranges of `dims`.

    False also where no proof was found. O(distinct sizes).
    """
    if shaped.loops:
        return False
    store = SizeRelations(dims)
    more = {dim: SizeExpr.dim(dim) + 1}
    sizes = {*shaped.storage_sizes, *shaped.workspace_sizes, shaped.persistent_size}
    return all(
        store.compare(size, size.substitute(more)) in {"<", "<=", "=="}
        for size in sizes
        if dim in size.dims()
    )


def least_bytes(shaped: ShapedProgram, shape: Shape) -> int:
    """Bytes that no script of a program goes below at a shape: all that one node takes, reads and makes.

    O(nodes + operands).
    """
    problem, sizes = shaped.problem, shaped.at(shape)
    persistent = shaped.persistent_size.evaluate(shape)
    most = 0
    for node, operands in enumerate(problem.operands):
        touched = {problem.value_storage[value] for value in operands} - {-1}
        touched.update(problem.created[node])
        held = sum(sizes.storage_bytes[s] for s in touched)
        most = max(most, held + sizes.workspace[node])
    return persistent + most


class LimitedProgram:
    """Which shapes of a program stay within a limit of storages and workspace, with what the caller owns."""

    def __init__(self, in_order: ShapedProgram, decisions: Decisions, limit_bytes: int) -> None:
        self.in_order, self._decisions, self._limit = in_order, decisions, limit_bytes

    def fits_in_order(self, shape: Shape) -> bool:
        """Whether a run that evicts nothing stays within the limit."""
        return self.in_order.at(shape).peak_bytes <= self._limit

    def fits_with_points(self, shape: Shape) -> bool:
        """Whether a script within the limit was found."""
        if least_bytes(self.in_order, shape) > self._limit:
            return False
        return self.peak_bytes(shape) <= self._limit

    def peak_bytes(self, shape: Shape) -> int:
        """Of the script that was found for a shape; above the limit where none within it was."""
        return self._decisions.of(shape, self._limit).script.peak_bytes

    def added_time(self, shape: Shape) -> float:
        """Seconds of what runs again, as a share of those of the program."""
        repeated = self._decisions.of(shape, self._limit).script.repeated
        problem = self.in_order.problem_at(shape)
        return sum(problem.repeat_seconds[node] for node in repeated) / sum(problem.seconds)


def last_by_halving(sizes: Sequence[int], fits: Callable[[int], bool]) -> int | None:
    """A size that fits and whose successor does not; None where the first does not fit.

    It is the largest that fits where no size fits after one that does not. O(log sizes) questions.
    """
    if not sizes or not fits(sizes[0]):
        return None
    if fits(sizes[-1]):
        return sizes[-1]
    return sizes[bisect_left(sizes, True, lo=1, hi=len(sizes) - 1, key=lambda size: not fits(size)) - 1]


def last_by_looking(sizes: Sequence[int], fits: Callable[[int], bool]) -> int | None:
    """The largest size that fits; None where none does. O(sizes) questions."""
    return next((size for size in reversed(sizes) if fits(size)), None)
