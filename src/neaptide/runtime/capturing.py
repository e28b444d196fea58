"""Captures a step for the public functions: what cannot be meant is refused first, and torch keeps quiet."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from neaptide.frontends.captured import CapturedStep
from neaptide.frontends.dynamic_dims import Dynamic, OutsideRangeError
from neaptide.frontends.torch_step import capture_step
from neaptide.runtime.arguments import check_call

# A trace stands in for `optimizer.step`, which schedulers look at; nothing of it is left afterwards.
_ABOUT_SCHEDULERS = r"Seems like `optimizer\.step\(\)`|Detected call of `lr_scheduler\.step\(\)`"


def capture(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    state: Any = None,
    name: str = "",
    changing: frozenset[str] = frozenset(),
    dynamic: Dynamic | None = None,
) -> CapturedStep:
    """Capture a step; see `frontends.torch_step.capture_step` for the arguments.

    Raises:
        CaptureError: the step takes other arguments, or cannot be captured; names the user's line.
        UsageError: it is no step but a factory, or `dynamic` does not fit the arguments.
    """
    check_call(step, args, kwargs or {})
    with quiet_torch():
        return capture_step(step, args, kwargs, state=state, name=name, changing=changing, dynamic=dynamic)


def capture_for_call(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic: Dynamic | None,
    **options: Any,
) -> CapturedStep:
    """A capture that is for this call: with dims that vary where that holds for its sizes, else for these alone.

    Args:
        step: as for `capture`.
        args: likewise.
        kwargs: likewise.
        dynamic: likewise.
        options: the others of `capture`.

    Raises:
        CaptureError: the step cannot be captured.
        UsageError: it is no step but a factory, or `dynamic` does not fit the arguments.
    """
    if dynamic:
        try:
            captured = capture(step, args, kwargs, dynamic=dynamic, **options)
        except OutsideRangeError:
            return capture(step, args, kwargs, **options)
        # The facts of the call itself are those of the capture also where it holds for other sizes only.
        if captured.sizes is None or captured.sizes.holds(args, kwargs):
            return captured
    return capture(step, args, kwargs, **options)


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Keep torch from logging what a failed trace raises anyway, and from warning about a trace's stand-ins.

    With `TORCH_LOGS` set its logs are wanted and stay.
    """
    loggers = [
        logger
        for name, logger in list(logging.root.manager.loggerDict.items())
        if name.split(".")[0] == "torch" and isinstance(logger, logging.Logger) and not logger.disabled
    ]
    silenced = [] if os.environ.get("TORCH_LOGS") else loggers
    for logger in silenced:
        logger.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_ABOUT_SCHEDULERS)
            yield
    finally:
        for logger in silenced:
            logger.disabled = False
