"""Keeps torch quiet while a step is traced."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

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
