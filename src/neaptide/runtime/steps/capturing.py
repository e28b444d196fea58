"""Captures a step for the public functions: what cannot be meant is refused first, and torch keeps quiet."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Unpack

from neaptide.frontends.dims.dynamic_dims import OutsideRangeError
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.frontends.torch_step import CaptureOptions, capture_step
from neaptide.runtime.steps.arguments import check_call


def capture(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    **how: Unpack[CaptureOptions],
) -> CapturedStep:
    """Capture a step; see `frontends.torch_step.capture_step` for the arguments."""
    check_call(step, args, kwargs or {})
    with quiet_torch():
        return capture_step(step, args, kwargs, **how)


def capture_for_call(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    **how: Unpack[CaptureOptions],
) -> CapturedStep:
    """A capture that is for this call: with dims that vary where that holds for its sizes, else for these alone.

    Args:
        **how: likewise. A dim of size 1 that the program for its range does not hold for is a number, and the others vary.
    """
    alone: CaptureOptions = {**how, "dynamic": None, "like": None}
    if not how.get("dynamic"):
        return capture(step, args, kwargs, **alone)
    like = how.get("like")
    known = None if like is None else like.sizes
    fixed = frozenset[str]() if known is None else known.single(args, kwargs)
    try:
        varying: CaptureOptions = {**how, "fixed": fixed}
        captured = capture(step, args, kwargs, **varying)
        # The facts of the call itself are those of the capture also where it holds for other sizes only.
        if captured.sizes is None or captured.sizes.holds(args, kwargs):
            return captured
        single = captured.sizes.single(args, kwargs) - fixed
        if single:
            varying = {**how, "fixed": fixed | single, "like": None}
            captured = capture(step, args, kwargs, **varying)
            if captured.sizes is None or captured.sizes.holds(args, kwargs):
                return captured
    except OutsideRangeError:
        pass
    return capture(step, args, kwargs, **alone)


# A trace stands in for `optimizer.step`, which schedulers look at; nothing of it is left afterwards.
_ABOUT_SCHEDULERS = r"Seems like `optimizer\.step\(\)`|Detected call of `lr_scheduler\.step\(\)`"


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
