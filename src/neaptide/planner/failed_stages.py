"""What happens when a part of a search fails, which is a fault of ours: the answer is found without that part.

A user has the best plan of the other parts, and is told once, in one line, what failed. Tests want the failure itself.
A part that does not listen when the user interrupts is cut, and the answer is found without it too.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from neaptide.errors import MissingExtra, UsageError
from neaptide.interruption import keeping, part

logger = logging.getLogger(__name__)

T = TypeVar("T")


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


def attempt(stage: str, work: Callable[[], T], otherwise: Callable[[], T], *, can_be_cut: bool = True) -> T:
    """The result of a part of a search, or what there is without it when it fails or is cut.

    What the user can put right (an unknown name, an extra that is not installed) is raised in any case.

    Args:
        stage: what it is called in the warning, such as `the strategy lagrangian`.
        work: the part.
        otherwise: what there is without it.
        can_be_cut: False for a part that holds the best answer so far: only the parts inside it are cut.
    """
    if can_be_cut:
        return part(lambda: _attempt(stage, work, otherwise), otherwise)
    with keeping():
        return _attempt(stage, work, otherwise)


def _attempt(stage: str, work: Callable[[], T], otherwise: Callable[[], T]) -> T:
    try:
        return work()
    except (UsageError, MissingExtra):
        raise
    except Exception as error:
        policy = _policies[-1]
        if policy.on_failure is OnFailure.RAISE:
            raise
        logger.debug("%s failed", stage, exc_info=error)
        if stage not in policy.told:
            policy.told.add(stage)
            told = (str(error).splitlines() or [""])[0]
            warnings.warn(
                f"{stage} failed ({type(error).__name__}: {told}), and the plan is made without it; "
                "please report this",
                FailedStageWarning,
                stacklevel=3,
            )
        return otherwise()
