"""Objects that cannot be part of a captured step, and why."""

from __future__ import annotations

from typing import Any, Final

import torch

from neaptide.errors import CaptureError
from neaptide.frontends import _torch_private as private

_REFUSED: Final[tuple[tuple[type, str, str | None], ...]] = (
    (
        torch.Generator,
        "an explicit random generator would be frozen into the program; use the default generator",
        None,
    ),
    (
        torch.nn.parallel.DistributedDataParallel,
        "its gradient reduction runs outside the traced program; capture the module inside it (.module)",
        None,
    ),
    (
        torch.jit.ScriptModule,
        "TorchScript keeps parameters and code where a trace cannot put stand-ins for them",
        "use the module that it was made of; neaptide plans the operations that TorchScript would run",
    ),
)
_OTHER_SCALER: Final = (
    "a gradient scaler of another class than torch.amp.GradScaler may skip updates by rules of its own"
)


def refuse(item: Any, name: str) -> None:
    """Raise `CaptureError` for state that a captured step cannot carry."""
    found = [(why, fix) for kind, why, fix in _REFUSED if isinstance(item, kind)]
    if isinstance(item, torch.amp.GradScaler) and item.is_enabled() and not private.is_plain_scaler(item):
        found.append((_OTHER_SCALER, None))
    for why, fix in found:
        what = f"{name} ({type(item).__name__}) cannot be part of a captured step"
        raise CaptureError(what, why=why, next_step=fix)


def refuse_wrapper(tensor: torch.Tensor, name: str) -> None:
    """Raise `CaptureError` for a tensor that is made of others and has no bytes of its own."""
    if private.holds_other_tensors(tensor):
        raise CaptureError(
            f"{name} is a {type(tensor).__name__}, which cannot be part of a captured step",
            why="it is a wrapper of other tensors and has no bytes of its own that could be planned",
            next_step="keep a plain tensor there: plan the model before fully_shard or distribute_tensor is applied, or "
            "pass the tensor inside of it (`.to_local()` of a DTensor)",
        )


def refuse_odd_state(optimizer: torch.optim.Optimizer, label: str) -> None:
    """Raise `CaptureError` for optimizer state that is not kept as torch keeps it: a dict for each parameter."""
    for entries in optimizer.state.values():
        if not isinstance(entries, dict):
            raise CaptureError(
                f"{label} keeps a {type(entries).__name__} in {label}.state[...]",
                why="state of an optimizer is a dict of named entries for each parameter",
                next_step=f"keep it under a name: {label}.state[p]['buffer']",
            )
