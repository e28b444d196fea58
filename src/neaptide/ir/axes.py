"""How an operation runs in parts along an axis: the words in which rows of the op table say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Along:
    """Where the axis lies in a value: `extent = outer * length of the axis * inner` elements of one dim.

    Attributes:
        outer: how many runs of the axis lie after one another; more than 1 where a view has joined an outer dim to it.
    """

    dim: int
    outer: int = 1


class Merge(StrEnum):
    """How a result that does not carry the axis follows from what the parts make."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    SAME = "same"  # every part makes the whole result
    OWN = "own"  # every part makes one of its own, which only the same part can read: nothing of the whole


class Need(StrEnum):
    """What must be seen to before an operation may run in parts."""

    COMPLETE = "complete"  # an operand is a sum over all parts: it must be complete before the parts begin
    MEAN = "mean"  # it divides by a count of its own part: sum instead, and divide by the count of all parts
    ADDEND = "addend"  # an operand would be added in each part: add it once, outside
    RANDOM = "random"  # it draws random numbers: the parts must draw those of the whole
    HALO = "halo"  # a part of its operand overlaps the parts next to it


@dataclass(frozen=True, slots=True)
class Window:
    """A result at `i` reads its operand from `i * stride - before` on, `kernel` elements with `dilation` in between.

    Attributes:
        kernel: elements read for one element of the result.
        stride: of the operand, for one element of the result.
        dilation: distance between elements that are read.
        before: elements of padding in front of the operand.
        fill: the number that stands where a window reaches beyond the operand, in front of it or after.
        padding: arguments that say how much padding there is, as (position, place in its list).
        padding_in_part: what they say for a part that holds all that its windows read.
        operands: slots of the operands that are read so; the others are read like the result.
        inverse: the result has `stride` elements for one of the operand, each made of that one alone.
    """

    kernel: int
    stride: int = 1
    dilation: int = 1
    before: int = 0
    operands: tuple[int, ...] = (0,)
    inverse: bool = False
    fill: float = 0.0
    padding: tuple[tuple[int, int], ...] = ()
    padding_in_part: int = 0

    @property
    def halo(self) -> int:
        """Elements that a part reads beyond its own; 0 where windows neither overlap nor skip."""
        return self.dilation * (self.kernel - 1) + 1 - self.stride


@dataclass(frozen=True, slots=True)
class OpAxis:
    """One axis that runs through an operation. Slots count `Node.inputs`, results `Node.outputs`.

    Attributes:
        operands: by slot of an operand that is handed over in parts, the dim; all others are handed over whole.
        results: for every result the dim in which it is made in parts, or how its parts are merged.
        addends: slots of operands that each part would add once more (`Need.ADDEND`).
        unread: slots of operands whose numbers do not matter in this call.
        sizes: positions of arguments, other than shapes of the first result, that hold the extent of the axis in the first
            result; (position, place) for one number of a list, a name for a keyword argument.
        window: where operands and results differ in extent, how one is read for the other.
        whole: the axis runs through the operation, which needs all of it at once, as softmax does: it does not run in
            parts, but its results can be cut.
        private: results that mean something within their part only, such as places counted from its start, or what a
            library keeps for the backward in a form of its own (`Merge.OWN`).
        own: slots of operands that must be such results of the same part.
    """

    operands: Mapping[int, int]
    results: Mapping[int, int | Merge]
    needs: tuple[Need, ...] = ()
    addends: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    sizes: tuple[int | str | tuple[int, int], ...] = ()
    window: Window | None = None
    whole: bool = False
    private: tuple[int, ...] = ()
    own: tuple[int, ...] = ()

    @property
    def is_sum(self) -> bool:
        """Whether all that parts make are terms of sums."""
        return all(how is Merge.SUM for how in self.results.values())
