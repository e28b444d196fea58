"""Finds the dims that vary by watching calls: sizes that a plan was made for, and the dims that they suggest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch

from neaptide.errors import CaptureError, InfeasibleBudget
from neaptide.frontends.dims.dynamic_dims import tensors_by_path
from neaptide.frontends.recording._torch_sizes import keeps_sizes
from neaptide.frontends.recording.trace_values import identifier
from neaptide.runtime.steps.planned_graph import PlannedVariant

logger = logging.getLogger(__name__)

_Place: TypeAlias = tuple[str, int]  # path of a tensor, and its dim

SMALLEST: Final = 2  # size of a dim that varies: torch takes 0 and 1 for constants
# Where ranges end. Without an end, torch does not prove that a slice up to the last index is the whole, and keeps it.
_LARGEST: Final = 1 << 20
_TIMES_THOSE_SEEN: Final = 16
_LONGEST: Final = 160  # characters of a reason in a warning
_INSTEAD: Final = "pad sizes to a few multiples (bucketing), or say dynamic=False"


@dataclass(frozen=True)
class SeenDims:
    """Dims that have varied, as `compile_step` takes them; their ranges are as good as without end."""

    dynamic: Mapping[str, Mapping[int, torch.export.Dim]]
    # Sizes by dim, of the call with the most elements and of the last one; the largest is last.
    shapes: tuple[Mapping[str, int], ...]

    @property
    def key(self) -> tuple[tuple[str, int, str], ...]:
        """Its dims by path, axis and name; alike for the same dims."""
        return tuple(
            (path, axis, dim.__name__) for path, dims in self.dynamic.items() for axis, dim in dims.items()
        )


class SeenSizes:
    """Sizes of the arguments of calls that were planned for. Calls are alike that differ in nothing but sizes.

    Where the limit is `of_shape`, what does not stay within it at one shape does at none.
    """

    def __init__(self, step: Callable[..., Any], *, of_shape: bool = False) -> None:
        self._step, self._of_shape = step, of_shape
        self._calls: list[dict[str, tuple[int, ...]]] = []
        self._fixed: dict[_Place, str] = {}  # why a dim cannot vary
        self._above: list[SeenDims] = []  # what no plan was found for within the limit
        self._watches = True
        self._has_warned = False

    def planned(
        self,
        plan: Callable[[SeenDims | None], PlannedVariant],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> PlannedVariant:
        """A plan for a call: for all sizes of the dims that have varied by now, else for its sizes alone.

        Where no program for them keeps this call within its limit, its shape is planned by itself. Where the step cannot be
        captured with symbols for its sizes, or one of them is fixed by its code, each shape is from then on, and a warning
        says so once. `plan` is for dims that vary, or for one shape, and raises what `compile_step` raises.
        """
        tensors = tensors_by_path(self._step, args, kwargs)
        self._calls.append({path: tuple(tensor.shape) for path, (_, tensor) in tensors.items()})
        try:
            return self._for_dims(plan) or plan(None)
        except BaseException:
            self._calls.pop()  # a call that was refused says nothing about those to come
            raise

    def _for_dims(self, plan: Callable[[SeenDims | None], PlannedVariant]) -> PlannedVariant | None:
        """None where no dim has varied, or there is no program for it."""
        if self._watches and (seen := self.dims()) is not None and not self._is_above(seen):
            told = ", ".join(f"dim {axis} of {path}" for path, axis, _ in seen.key)
            if not keeps_sizes():
                why = f"torch {torch.__version__} cannot trace sizes that vary, 2.13 and later can"
                self._give_up(told, why)
                return None
            logger.info("sizes that have varied are left to the calls from now on: %s", told)
            try:
                made = plan(seen)
            except InfeasibleBudget as error:
                logger.info("planned for this shape alone: %s", error.what)
                self._above.append(seen)
                if self._of_shape:
                    self._give_up(told, error.what)
            except CaptureError as error:
                where = f" ({error.where})" if error.where else ""
                self._give_up(told, f"{error.what}{where}")
            else:
                self._note_fixed(seen, made)
                return made
        return None

    def dims(self) -> SeenDims | None:
        """The dims whose sizes differ among calls like the last one; None where there are none.

        Dims that had the same size in every call are one. A size of 1 is a number: the program for it has its other dims.
        """
        last = self._calls[-1]
        alike = [call for call in self._calls if _ndims(call) == _ndims(last)]
        dims: dict[tuple[int, ...], torch.export.Dim] = {}
        found: dict[str, dict[int, torch.export.Dim]] = {}
        for path, axis in _places(last):
            sizes = tuple(call[path][axis] for call in alike)
            if sizes[-1] >= SMALLEST and len(set(sizes)) > 1 and (path, axis) not in self._fixed:
                name = f"{identifier(path)}_{axis}"
                most = max(_LARGEST, _TIMES_THOSE_SEEN << max(sizes).bit_length())
                shared = dims.setdefault(sizes, torch.export.Dim(name, min=SMALLEST, max=most))
                found.setdefault(path, {})[axis] = shared
        if not found:
            return None
        able = [i for i in range(len(alike)) if all(sizes[i] >= SMALLEST for sizes in dims)]
        largest = max(able, key=lambda i: _elements(alike[i]))
        shapes = [{dim.__name__: sizes[i] for sizes, dim in dims.items()} for i in {able[-1], largest}]
        return SeenDims(found, tuple(sorted(shapes, key=lambda shape: sum(shape.values()))))

    def _is_above(self, seen: SeenDims) -> bool:
        """Whether no plan was found for a shape that is no larger than that of the last call."""
        last = {name: self._calls[-1][path][axis] for path, axis, name in seen.key}
        return any(
            seen.key == other.key and all(last[dim] >= size for dim, size in other.shapes[-1].items())
            for other in self._above
        )

    def _note_fixed(self, seen: SeenDims, made: PlannedVariant) -> None:
        """Leave out from then on what was to vary and has one size in the step's own code."""
        asked: dict[str, str] = {}
        for program in made.captured.programs:
            for name, size in program.sizes.asked.items():
                if size.is_constant:
                    about = f"the program holds for {name} = "
                    asked[name] = next((tie for tie in program.sizes.ties if tie.startswith(about)), "")
        for path, axis, name in seen.key:
            if name in asked:
                self._fixed[path, axis] = asked[name]
                line = asked[name].partition(": ")[2] or "the step"
                self._warn(f"dim {axis} of {path}", f"its size is fixed by {line}")

    def _give_up(self, told: str, reason: str) -> None:
        self._watches = False
        self._warn(told, reason)

    def _warn(self, dims: str, reason: str) -> None:
        """One line, once."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "each shape is planned by itself, since no program lets %s vary: %s; %s",
                *(_cut(dims), _cut(" ".join(reason.split())), _INSTEAD),
            )


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _elements(call: Mapping[str, tuple[int, ...]]) -> int:
    return sum(torch.Size(shape).numel() for shape in call.values())


def _ndims(call: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    return {path: len(shape) for path, shape in call.items()}


def _places(call: Mapping[str, tuple[int, ...]]) -> Iterator[_Place]:
    for path, shape in call.items():
        for axis in range(len(shape)):
            yield path, axis
