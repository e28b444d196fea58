from __future__ import annotations

import logging
import warnings

import pytest
import torch

from frontends import steps
from neaptide.errors import CaptureError, UsageError
from neaptide.runtime.capturing import capture, quiet_torch


@pytest.mark.parametrize("wanted", [False, True])
def test_torch_is_quiet_inside_unless_its_logs_are_wanted(wanted, monkeypatch):
    monkeypatch.setenv("TORCH_LOGS", "dynamo" if wanted else "")
    logger, other = logging.getLogger("torch.fx.experimental.symbolic_shapes"), logging.getLogger("mine")
    with quiet_torch():
        assert logger.disabled is not wanted
        assert not other.disabled
        warnings.warn("Detected call of `lr_scheduler.step()` before", UserWarning, stacklevel=1)
        with pytest.raises(UserWarning, match="other"):
            warnings.warn("something other", UserWarning, stacklevel=1)
    assert not logger.disabled


def test_a_step_is_captured_and_what_is_none_is_refused():
    step, batch = steps.mlp()
    assert capture(step, (batch,)).steady.graph.nodes
    with pytest.raises(CaptureError, match="called with no arguments"):
        capture(step, ())
    with pytest.raises(UsageError, match="a factory was given"):
        capture(steps.mlp, ())
    with pytest.raises(UsageError, match="cannot be called"):
        capture(torch.ones(1), ())  # type: ignore[arg-type]
