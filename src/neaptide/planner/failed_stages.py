"""What happens when a part of a search fails, which is a fault of ours: the answer is found without that part.

A user has the best plan of the other parts, and is told once, in one line, what failed. Tests want the failure itself.
A part that does not listen when the user interrupts is cut, and the answer is found without it too.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType

from neaptide.errors import MissingExtra, UsageError
from neaptide.interruption import Part, keeping

logger = logging.getLogger(__name__)

_told: list[set[str] | None] = [set()]
"""The parts that have been told of in this process; None last where failures are raised."""


class FailedStageWarning(UserWarning):
    """A part of a search failed, and the plan was made without it."""


@contextmanager
def failing_stages(*, are_raised: bool) -> Iterator[None]:
    """Whether failing parts raise meanwhile, or are told of; for tests and for those who work on a strategy."""
    _told.append(None if are_raised else set())
    try:
        yield
    finally:
        _told.pop()


class Stage:
    """A part of a search, such as `the strategy lagrangian`; where it fails or is cut, what comes after it does without.

    What the user can put right (an unknown name, an extra that is not installed) is raised in any case.
    A part that holds the best answer so far cannot be cut, only the parts inside it.
    """

    def __init__(self, name: str, *, can_be_cut: bool = True) -> None:
        self._name = name
        self._around: AbstractContextManager[None] = Part() if can_be_cut else keeping()

    def __enter__(self) -> None:
        self._around.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._around.__exit__(kind, error, trace):
            return True
        told = _told[-1]
        if told is None or not isinstance(error, Exception) or isinstance(error, UsageError | MissingExtra):
            return False
        logger.debug("%s failed", self._name, exc_info=error)
        if self._name not in told:
            told.add(self._name)
            said = (str(error).splitlines() or [""])[0]
            warnings.warn(
                f"{self._name} failed ({type(error).__name__}: {said}), and the plan is made without it; "
                "please report this",
                FailedStageWarning,
                stacklevel=2,
            )
        return True
