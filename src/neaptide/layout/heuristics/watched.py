"""Placement rules that stop in the middle: their loops over buffers ask a guard, and give up as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from neaptide.errors import NeaptideError
from neaptide.outcome import LimitGuard

T = TypeVar("T")


class RuleStopped(NeaptideError):  # noqa: N818 - what happened is name enough
    """A rule was stopped before every buffer had its place, so there is no layout of it."""


def watched(items: Iterable[T], guard: LimitGuard | None) -> Iterator[T]:
    """The items one by one, for as long as there is time.

    Work is not charged: a rule runs as a whole or, with a guard without time limit and interrupt, never stops.

    Raises:
        RuleStopped: the time is over, or the user interrupts.
    """
    for item in items:
        if guard is not None and (reason := guard.check_now()) is not None:
            raise RuleStopped("a placement rule was stopped before its end", why=f"limit: {reason}")
        yield item
