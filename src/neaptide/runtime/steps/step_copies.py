"""Copies of a planned step: one for the copied objects, which is planned when it is first called."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from neaptide.errors import UsageError

if TYPE_CHECKING:
    from neaptide.runtime.steps.planned_step import PlannedStep

Remake = Callable[[Callable[..., Any], Callable[[Any], Any]], "PlannedStep"]
"""Takes another step and a function that copies; gives that step under the same options."""


def deep_copied(
    planned: PlannedStep, step: Callable[..., Any], remake: Remake | None, memo: dict[int, Any]
) -> PlannedStep:
    """What `copy.deepcopy` makes of a planned step: itself where the step is a plain function, which no copy changes.

    Args:
        remake: makes a planned step of a copy; None where the plan is for these objects only.
    """
    copied = copy.deepcopy(step, memo)
    if copied is step:
        return planned
    if remake is None:
        raise UsageError(
            "this planned step is for its own objects and cannot be copied",
            next_step="copy the step and plan the copy: compile_step(copied_step, budget=...)",
        )
    return remake(copied, lambda item: copy.deepcopy(item, memo))


def not_pickled() -> UsageError:
    """The error for pickling a planned step: it holds compiled code and the places of the user's objects."""
    return UsageError(
        "a planned step cannot be pickled",
        why="it is tied to the objects of this process",
        next_step="leave it out of what is saved (__getstate__), and call compile_step again after loading; a plan is "
        "kept by plan.save(path)",
    )
