"""Facts about what PyTorch does for the whole thread while a step runs, and states in which none can be captured."""

from __future__ import annotations

from typing import Any

import torch

from neaptide.errors import CaptureError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.guards.place_facts import Fact
from neaptide.frontends.objects.values import Same

# Each decides which operations are recorded, or what they compute. What only a kernel asks while it runs (threads,
# the precision of products) holds for the program as it does for eager, and is no fact.
_READERS = {
    "grad mode": torch.is_grad_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "default dtype": torch.get_default_dtype,
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "autocast cache": torch.is_autocast_cache_enabled,
    "casts kept by autocast": private.keeps_casts,
    "anomaly detection": torch.is_anomaly_enabled,
    **private.kernel_choices(),
}


def modes() -> tuple[Fact, ...]:
    """All of them, by name."""
    function_modes, dispatch_modes = private.active_modes()
    devices = [device for mode in function_modes if (device := private.device_of_mode(mode)) is not None]
    return (
        *((name, read()) for name, read in _READERS.items()),
        ("autocast on cpu", _autocast("cpu")),
        ("autocast on cuda", _autocast("cuda")),
        ("default device", str(devices[-1]) if devices else "cpu"),
        ("modes of torch functions", tuple(map(Same, _foreign(function_modes)))),
        ("modes of operations", tuple(map(Same, _changing(dispatch_modes)))),
        ("transforms of torch.func", private.is_inside_transform()),
        ("hooks of saved tensors", tuple(map(Same, private.saved_tensor_hooks() or ()))),
    )


def check_modes() -> None:
    """Refuse to capture while something is active that the captured program would not go through."""
    function_modes, dispatch_modes = private.active_modes()
    active = [
        ("a TorchFunctionMode", _foreign(function_modes)),
        ("a TorchDispatchMode", _changing(dispatch_modes)),
    ]
    for what, found in active:
        if found:
            raise CaptureError(
                f"{what} is active: {type(found[-1]).__name__}",
                why="it may change every operation, and would act once, at capture",
                next_step="leave it around this step, or set `only_observes = True` in its class if it changes nothing",
            )
    if private.is_inside_transform():
        raise CaptureError(
            "the step runs inside a transform of torch.func",
            why="a program of plain tensors is no program of transformed ones",
            next_step="call the transform inside the step",
        )
    if torch.is_anomaly_enabled():
        raise CaptureError(
            "anomaly detection is on",
            why="it looks at each backward operation of autograd, and the program runs none",
            next_step="turn it off, or run the step eagerly while you look for the anomaly",
        )
    if private.keeps_casts():
        raise CaptureError(
            "autocast is on around the call of the step, and keeps its casts of weights",
            why="eager goes on with the casts that it made in earlier calls, of weights that were updated since",
            next_step="enter autocast inside the step, or with cache_enabled=False",
        )
    if torch.is_inference_mode_enabled():
        raise CaptureError(
            "inference mode is on", why="nothing is trained in it", next_step="leave it around this step"
        )


def _autocast(device: str) -> Any:
    return torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device)


def _foreign(function_modes: tuple[Any, ...]) -> list[Any]:
    return [mode for mode in _changing(function_modes) if private.device_of_mode(mode) is None]


def _changing(modes: tuple[Any, ...]) -> list[Any]:
    return [mode for mode in modes if not getattr(mode, "only_observes", False)]
