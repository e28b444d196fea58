"""What happens when a part of a search fails, which is a fault of ours: the answer is found without that part.

A user has the best plan of the other parts, and is told once, in one line, what failed. Tests want the failure itself.
A part that does not listen when the user interrupts is cut, and the answer is found without it too.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType

from neaptide.errors import MissingExtra, UsageError
from neaptide.interruption import Part, keeping

logger = logging.getLogger(__name__)


class FailedStageWarning(UserWarning):
    """A part of a search failed, and the plan was made without it."""


class OnFailure(StrEnum):
    """What a failing part of a search does: warn and go on without it, or raise what it failed with."""

    WARN = "warn"
    RAISE = "raise"


@dataclass(slots=True)
class _Policy:
    """What is done, and which parts have been told of in this process: each is told of once."""

    on_failure: OnFailure = OnFailure.WARN
    told: set[str] = field(default_factory=set)


_policies: list[_Policy] = [_Policy()]


@contextmanager
def failing_stages(on_failure: OnFailure) -> Iterator[None]:
    """What failing parts do meanwhile; for tests and for those who work on a strategy."""
    _policies.append(_Policy(on_failure))
    try:
        yield
    finally:
        _policies.pop()


class Stage:
    """A part of a search, such as `the strategy lagrangian`; where it fails or is cut, what comes after it does without.

    What the user can put right (an unknown name, an extra that is not installed) is raised in any case.

    Args:
        can_be_cut: False for a part that holds the best answer so far: only the parts inside it are cut.
    """

    def __init__(self, name: str, *, can_be_cut: bool = True) -> None:
        self._name = name
        self._around: AbstractContextManager[None] = Part() if can_be_cut else keeping()

    def __enter__(self) -> None:
        self._around.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if self._around.__exit__(kind, error, trace):
            return True
        policy = _policies[-1]
        is_ours = isinstance(error, Exception) and not isinstance(error, UsageError | MissingExtra)
        if not is_ours or policy.on_failure is OnFailure.RAISE:
            return False
        logger.debug("%s failed", self._name, exc_info=error)
        if self._name not in policy.told:
            policy.told.add(self._name)
            told = (str(error).splitlines() or [""])[0]
            warnings.warn(
                f"{self._name} failed ({type(error).__name__}: {told}), and the plan is made without it; "
                "please report this",
                FailedStageWarning,
                stacklevel=2,
            )
        return True
