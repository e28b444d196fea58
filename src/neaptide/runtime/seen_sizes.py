"""Finds the dims that vary by watching calls: sizes that a plan was made for, and the ranges that they suggest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import torch

from neaptide.errors import CaptureError, InfeasibleBudget, NeaptideError
from neaptide.frontends.dynamic_dims import Dynamic, tensors_by_path
from neaptide.frontends.trace_values import identifier
from neaptide.runtime.planned_graph import PlannedVariant

logger = logging.getLogger(__name__)

_Place: TypeAlias = tuple[str, int]  # path of a tensor, and its dim

SMALLEST: Final = 1  # nothing is planned for tensors without elements


class SeenSizes:
    """Sizes of the arguments of calls that were planned for. Calls are alike that differ in nothing but sizes.

    Args:
        step: whose arguments they are.
    """

    def __init__(self, step: Callable[..., Any]) -> None:
        self._step = step
        self._calls: list[dict[str, tuple[int, ...]]] = []
        self._widens = self._watches = True

    def planned(
        self,
        plan: Callable[[Dynamic | None], PlannedVariant],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> PlannedVariant:
        """A plan for a call: for ranges of the dims that have varied by now, else for its sizes alone.

        The ranges are widened. Where no plan for them is within the budget, they are those of the sizes seen. Where none
        is for these either, or the step cannot be captured with symbols for its sizes, each shape is planned by itself
        from then on; a warning says so.

        Args:
            plan: for ranges, or for one shape; raises what `compile_step` raises.
            args: of the call.
            kwargs: likewise.

        Raises:
            NeaptideError: of the plan for this shape alone.
        """
        self._calls.append(self._sizes(args, kwargs))
        try:
            return self._for_ranges(plan) or plan(None)
        except BaseException:
            self._calls.pop()  # a call that was refused says nothing about those to come
            raise

    def _for_ranges(self, plan: Callable[[Dynamic | None], PlannedVariant]) -> PlannedVariant | None:
        """None where no dim has varied, or no program was found for its range."""
        while self._watches and (ranges := self.ranges()):
            told = ", ".join(f"dim {axis} of {path}" for path, dims in ranges.items() for axis in dims)
            logger.info("sizes that have varied are left to the calls from now on: %s", told)
            reason: NeaptideError
            try:
                return plan(ranges)
            except InfeasibleBudget as error:
                reason, self._watches, self._widens = error, self._widens, False
            except CaptureError as error:
                reason, self._watches = error, False
            if self._watches:
                logger.info("planned for the sizes seen, as wider ranges do not fit: %s", reason)
            else:
                logger.warning("each shape is planned by itself: no program for %s: %s", told, reason)
        return None

    def ranges(self) -> dict[str, dict[int, torch.export.Dim]]:
        """The dims whose sizes differ among calls like the last one, as `compile_step` takes them.

        The range of a dim is that of the sizes seen, widened to powers of two: one that is left is at least twice as
        large afterwards, so a step is planned again at most so many times as the largest size has bits.
        Dims that had the same size in every call are one.
        """
        last = self._calls[-1]
        alike = [call for call in self._calls if _ndims(call) == _ndims(last)]
        dims: dict[tuple[int, ...], torch.export.Dim] = {}
        found: dict[str, dict[int, torch.export.Dim]] = {}
        for path, axis in _places(last):
            sizes = tuple(call[path][axis] for call in alike)
            low, high = max(min(sizes), SMALLEST), max(sizes)
            if low < high:
                if self._widens:
                    low, high = 1 << low.bit_length() - 1, 1 << (high - 1).bit_length()
                name = f"{identifier(path)}_{axis}"
                shared = dims.setdefault(sizes, torch.export.Dim(name, min=low, max=high))
                found.setdefault(path, {})[axis] = shared
        return found

    def _sizes(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        tensors = tensors_by_path(self._step, args, kwargs)
        return {path: tuple(tensor.shape) for path, (_, tensor) in tensors.items()}


def _ndims(call: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    return {path: len(shape) for path, shape in call.items()}


def _places(call: Mapping[str, tuple[int, ...]]) -> Iterator[_Place]:
    for path, shape in call.items():
        for axis in range(len(shape)):
            yield path, axis
