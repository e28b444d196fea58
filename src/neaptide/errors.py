"""Every error neaptide raises on purpose: what happened, where, why, and what to do next.

All of them derive from `NeaptideError`. `exit_code` is what the command line returns for the class
(0 done, 1 bug, 2 usage, 3 budget not reachable, 4 input not supported, 5 verification failed).
"""

# ruff: noqa: N818 - what went wrong is name enough: `except InfeasibleBudget`
from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, Final

REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "torch": ("torch>=2.11",),
    "zoo": ("torch>=2.11", "transformers>=5"),
    "plots": ("matplotlib>=3.8",),
    "onnx": ("onnx>=1.18", "onnx-ir>=1.0"),
    "tflite": (),  # its reader needs no package
}
"""The extras of `pyproject.toml`, by name; packages are installed by their own names, which every index has."""


class NeaptideError(Exception):
    """Root of all errors that neaptide raises on purpose.

    Args:
        what: one sentence, what happened.
        where: the user's file and line, or the value it is about; printed as `where:`.
        why: the reason; printed as `why:`.
        next_step: what the user can do now; printed as `next:`.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self, what: str, *, where: str | None = None, why: str | None = None, next_step: str | None = None
    ) -> None:
        self.what = what
        self.where = where
        self.why = why
        self.next_step = next_step
        super().__init__(self.render())

    def __reduce__(self) -> tuple[Any, ...]:
        """Classes have initialisers of their own, so that an error of another process is put together without them."""
        return _put_together, (type(self), self.args, vars(self))

    def render(self) -> str:
        """The message as printed: what happened, then one line each for where, why and next."""
        lines = [self.what]
        for label, text in (("where", self.where), ("why", self.why), ("next", self.next_step)):
            if text:
                lines.append(f"  {label}: {text}")
        return "\n".join(lines)


def _put_together(
    cls: type[NeaptideError], args: tuple[Any, ...], attributes: dict[str, Any]
) -> NeaptideError:
    error = cls.__new__(cls, *args)
    vars(error).update(attributes)
    return error


class UsageError(NeaptideError):
    """An argument that cannot be meant: an unknown option, a malformed size, a missing file."""

    exit_code = 2


class UnreadableFile(UsageError):
    """A file that is not there, or that cannot be read as what it should be."""


class InvalidBudget(UsageError):
    """A budget that is NaN, negative, above 100 % or not a size at all."""


class TargetError(UsageError):
    """A command-line target that names no file, factory or zoo model."""


class LayoutProblemError(UsageError):
    """A layout problem that breaks its own rules: an empty lifetime, a negative size, fixed buffers that overlap."""


class CaptureError(NeaptideError):
    """The step cannot be captured as one graph; names the user's line."""

    exit_code = 4


class UnsupportedModel(NeaptideError):
    """A model file that holds something that cannot be planned: an operator, a type, a shape that is not known."""

    exit_code = 4


class HostEffectError(CaptureError):
    """The step does something outside the program that would happen once, at capture, and never again."""


class UnsupportedTorch(NeaptideError):
    """The installed PyTorch lacks a name that neaptide needs."""

    exit_code = 4


class MissingExtra(NeaptideError):
    """An optional dependency is not installed; the message holds the pip command."""

    exit_code = 4


def how_to_install(extra: str) -> str:
    """The command that installs what an extra needs.

    >>> how_to_install("zoo")
    'pip install "torch>=2.11" "transformers>=5"'
    """
    return " ".join(("pip install", *(f'"{requirement}"' for requirement in REQUIRED[extra])))


class VerifyError(NeaptideError):
    """A graph, schedule, layout or program breaks a rule that it must keep; ours, not the user's."""


class RewriteError(NeaptideError):
    """A change of a graph that is not legal where it was asked for."""

    exit_code = 4


class UnknownOp(NeaptideError):
    """An operation without a row in the op table where a row is required."""

    exit_code = 4


class SolverError(NeaptideError):
    """A solver outside our process died or spoke nonsense; the message holds the end of what it wrote to stderr."""


class ProgramError(NeaptideError):
    """A program that failed, or died, while it was measured in a process of its own."""


class SymbolicError(NeaptideError):
    """A size expression that cannot be evaluated, parsed or compared."""


class InfeasibleBudget(NeaptideError):
    """No plan was found within the budget.

    Attributes:
        smallest_peak_bytes: the lowest peak that was found.
        lower_bound_bytes: no plan with the allowed moves can go below this.
        live: names of the values live at that peak, largest first.
        plan: the best plan found, a `neaptide.plans.Plan`; None when there is none.
    """

    exit_code = 3

    def __init__(
        self,
        what: str,
        *,
        smallest_peak_bytes: int,
        lower_bound_bytes: int,
        live: tuple[str, ...] = (),
        plan: object | None = None,
        where: str | None = None,
        why: str | None = None,
        next_step: str | None = None,
    ) -> None:
        self.smallest_peak_bytes = smallest_peak_bytes
        self.lower_bound_bytes = lower_bound_bytes
        self.live = live
        self.plan = plan
        super().__init__(what, where=where, why=why, next_step=next_step)

    def for_calls(self, difference: str) -> InfeasibleBudget:
        """The same error, which says in words how these calls differ from those planned before."""
        again = copy.copy(self)
        again.what = f"{self.what}; these calls need a plan of their own: {difference}"
        again.args = (again.render(),)
        return again


class PlanError(NeaptideError):
    """A plan file that is truncated, edited or of an unknown version."""

    exit_code = 4


class PlanMismatch(NeaptideError):
    """A plan that was made for another program, shape, dtype or device."""

    exit_code = 4


class StepMismatch(PlanMismatch):
    """A call whose inputs differ from those the plan was made for, with `on_mismatch="error"`."""


class LoweringError(NeaptideError):
    """A plan that cannot be turned into a program."""


class TransferError(NeaptideError):
    """A storage that could not be copied to the host or back: the disk is full, its file is cut, or no room is left."""


class StepInterrupted(NeaptideError):
    """A step died after its first in-place update; the model is neither before nor after the step.

    Attributes:
        updated: names of the tensors that had been updated when the step died.
    """

    def __init__(
        self,
        what: str,
        *,
        updated: tuple[str, ...],
        where: str | None = None,
        why: str | None = None,
        next_step: str | None = None,
    ) -> None:
        self.updated = updated
        super().__init__(what, where=where, why=why, next_step=next_step)


class NumericsWarning(UserWarning):
    """A planned call whose bits differ from eager's."""


class NumericsError(NeaptideError):
    """A verify run whose numbers differ from eager by more than the plan allows."""

    exit_code = 5
