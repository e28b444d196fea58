"""Looks at what a function of the user is, before anything is captured or run."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from neaptide.errors import CaptureError, UsageError
from neaptide.options import refuse_exclusions
from neaptide.plans import Plan, check_content

OnMismatch = Literal["replan", "eager", "error"]
"""What a call does that differs from all plans so far."""

_FACTORY = "def factory(): ...; return step, batch"


def check_call(step: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Refuse arguments that a step does not take."""
    if not callable(step):
        raise UsageError(
            f"the step is a {type(step).__name__}, which cannot be called",
            next_step="give the function that does forward, loss, backward and update",
        )
    signature = _signature(step)
    if signature is None:
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        given = [*(type(a).__name__ for a in args), *(f"{k}={type(v).__name__}" for k, v in kwargs.items())]
        raise CaptureError(
            f"the step was called with {_listed(given)}, and takes {signature}",
            where=place_of_code(step),
            why=str(error),
            next_step="give the batch after the step, as the training loop does: plan(step, batch, ...)",
        ) from error


def check_arena(plan: Plan, *, arena: bool) -> None:
    """Refuse an arena for a plan whose storages wait on the host."""
    if arena and any(program.offloads for program in plan.programs):
        refuse_exclusions({"arena", "host"})


def check_no_batch(function: str, given: tuple[Any, ...]) -> None:
    """Refuse a batch after a step where a factory is wanted."""
    if given:
        raise UsageError(
            f"{function} takes a factory, not a step and its batch",
            why="each program runs on fresh objects, so that none finds what another one has left",
            next_step=f"{function}(factory, ...), with {_FACTORY}",
        )


def check_factory(factory: Callable[..., Any]) -> None:
    """Refuse a step where a factory is wanted."""
    if not callable(factory):
        raise _no_factory(factory, f"a {type(factory).__name__} cannot be called")
    signature = _signature(factory)
    if signature is None:
        return
    try:
        signature.bind()
    except TypeError as error:
        raise _no_factory(factory, str(error)) from error


def _no_factory(found: Any, why: str) -> UsageError:
    return UsageError(
        "a factory is wanted, a function without arguments that returns (step, batch)",
        where=place_of_code(found),
        why=why,
        next_step=f"give the function that makes the step: {_FACTORY}",
    )


def check_made(
    made: Any, factory: Callable[..., Any], name: str = "the factory", kind: type[UsageError] = UsageError
) -> tuple[Callable[..., Any], Any]:
    """What a factory returned, when it is a step and a batch."""
    if isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
        return made
    raise kind(
        f"{name} returned {described(made)}",
        where=place_of_code(factory),
        why="a factory returns a tuple of two: the step, which is called, and the batch that it is called with",
        next_step=f"{_FACTORY}   # several tensors go into one batch: a tuple or a dict",
    )


def described(value: Any) -> str:
    """What kind of thing something is, in words."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} ({', '.join(type(part).__name__ for part in value)})"
    return "None" if value is None else f"a {type(value).__name__}"


def check_on_mismatch(on_mismatch: str) -> None:
    """Refuse an unknown way to deal with calls that differ."""
    if on_mismatch not in get_args(OnMismatch):
        raise UsageError(
            f"on_mismatch={on_mismatch!r} is not a choice",
            next_step=f"choose one of {', '.join(map(repr, get_args(OnMismatch)))}",
        )


def check_plan(plan: Any) -> Plan:
    """A plan that agrees with itself, read from its file where a path is given."""
    if isinstance(plan, str | Path):
        return Plan.load(plan)
    if not isinstance(plan, Plan):
        raise UsageError(
            f"a plan is wanted, not a {type(plan).__name__}",
            next_step="give what plan(...) returned, or the path of its file",
        )
    check_content(plan)
    return plan


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        # Some built-in callables have no signature; calling them will tell.
        return None


def place_of_code(function: Any) -> str | None:
    """`file:line` of a function; None where it has none."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _listed(parts: list[str]) -> str:
    return f"({', '.join(parts)})" if parts else "no arguments"


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
