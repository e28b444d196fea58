"""Captures a step for the public functions: what cannot be meant is refused first, and torch keeps quiet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from neaptide.frontends.dims.dynamic_dims import Dynamic, OutsideRangeError
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.frontends.torch_step import capture_step
from neaptide.runtime.arguments import check_call
from neaptide.runtime.quiet_torch import quiet_torch


def capture(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    state: Any = None,
    name: str = "",
    changing: frozenset[str] = frozenset(),
    dynamic: Dynamic | None = None,
    checkpoints: str = "keep",
    like: CapturedStep | None = None,
    fixed: frozenset[str] = frozenset(),
    replans: bool = False,
) -> CapturedStep:
    """Capture a step; see `frontends.torch_step.capture_step` for the arguments.

    Raises:
        CaptureError: the step takes other arguments, or cannot be captured; names the user's line.
        UsageError: it is no step but a factory, or `dynamic` does not fit the arguments.
    """
    check_call(step, args, kwargs or {})
    with quiet_torch():
        return capture_step(
            *(step, args, kwargs),
            state=state,
            name=name,
            changing=changing,
            dynamic=dynamic,
            checkpoints=checkpoints,
            like=like,
            fixed=fixed,
            replans=replans,
        )


def capture_for_call(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic: Dynamic | None,
    like: CapturedStep | None = None,
    **options: Any,
) -> CapturedStep:
    """A capture that is for this call: with dims that vary where that holds for its sizes, else for these alone.

    Args:
        step: as for `capture`.
        args: likewise.
        kwargs: likewise.
        dynamic: likewise. A dim of size 1 that the program for its range does not hold for is a number, and the others vary.
        like: likewise.
        options: the others of `capture`.

    Raises:
        CaptureError: the step cannot be captured.
        UsageError: it is no step but a factory, or `dynamic` does not fit the arguments.
    """
    if not dynamic:
        return capture(step, args, kwargs, **options)
    known = None if like is None else like.sizes
    fixed = frozenset[str]() if known is None else known.single(args, kwargs)
    try:
        captured = capture(step, args, kwargs, dynamic=dynamic, like=like, fixed=fixed, **options)
        # The facts of the call itself are those of the capture also where it holds for other sizes only.
        if captured.sizes is None or captured.sizes.holds(args, kwargs):
            return captured
        single = captured.sizes.single(args, kwargs) - fixed
        if single:
            captured = capture(step, args, kwargs, dynamic=dynamic, fixed=fixed | single, **options)
            if captured.sizes is None or captured.sizes.holds(args, kwargs):
                return captured
    except OutsideRangeError:
        pass
    return capture(step, args, kwargs, **options)
