"""Objects that cannot be part of a captured step, and why."""

from __future__ import annotations

from typing import Any

import torch

from neaptide.errors import CaptureError


def refuse(item: Any, name: str) -> None:
    """Raise for state that a captured step cannot carry.

    Raises:
        CaptureError: it is a random generator, a gradient scaler, TorchScript or wraps a module for several devices.
    """
    reason, fix = None, None
    if isinstance(item, torch.Generator):
        reason = "an explicit random generator would be frozen into the program; use the default generator"
    elif isinstance(item, torch.amp.GradScaler) and item.is_enabled():
        reason = (
            "GradScaler.step decides by the data whether to update; use bfloat16 autocast without a scaler"
        )
    elif isinstance(item, torch.nn.parallel.DistributedDataParallel):
        reason = (
            "its gradient reduction runs outside the traced program; capture the module inside it (.module)"
        )
    elif isinstance(item, torch.jit.ScriptModule):
        reason = "TorchScript keeps parameters and code where a trace cannot put stand-ins for them"
        fix = "use the module that it was made of; neaptide plans the operations that TorchScript would run"
    if reason is not None:
        raise CaptureError(
            f"{name} ({type(item).__name__}) cannot be part of a captured step", why=reason, next_step=fix
        )
