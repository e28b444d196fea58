"""Private names of PyTorch that a card which is not there needs, resolved in one place."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from neaptide.frontends._torch_private import resolve


def release() -> tuple[int, int]:
    """Major and minor number of torch."""
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


CUDA_START = "_lazy_init"  # of `torch.cuda`: asks the driver
resolve("torch.cuda", CUDA_START)
# Numbers of device types in the table of guards, as c10/core/DeviceType.h has them.
CUDA_GUARD, META_GUARD, _GUARDS = 1, 14, 21
_GUARD_TABLE = "_ZN3c104impl26device_guard_impl_registryE"


@functools.cache
def device_guards() -> Any:
    """For each type of device the address of what guards it, in torch's own table; None where it is not found."""
    libraries = Path(torch.__file__).parent / "lib"
    for name in ("libc10.so", "libc10.dylib"):
        if (libraries / name).exists():
            try:
                table = (ctypes.c_void_p * _GUARDS).in_dll(ctypes.CDLL(str(libraries / name)), _GUARD_TABLE)
            except (OSError, ValueError):
                return None
            return table if table[META_GUARD] else None
    return None


ENGINE = "_engine_run_backward"  # what `torch.autograd` and its module `graph` run a backward pass with
resolve("torch.autograd", ENGINE)
FUNCTION_CONTEXT: Any = resolve("torch.autograd.function", "FunctionCtx")
ACCUMULATOR = "torch::autograd::AccumulateGrad"  # name of the node that adds to the gradient of a leaf
BACKWARD_FUNCTION: Any = resolve(
    "torch.autograd.function", "BackwardCFunction"
)  # the node of a custom function


def results_of(node: Any) -> Any:
    """Shape, dtype and device of each tensor whose gradient an autograd node takes."""
    return node._input_metadata


def saved_by(node: Any) -> Any:
    """What the node of a custom function saved."""
    return node._raw_saved_tensors


def use_count(tensor: torch.Tensor) -> int:
    """How many references to a tensor torch's C++ code has; Python's object is one."""
    return int(tensor._use_count())  # type: ignore[attr-defined]


def gradient_hooks(tensor: torch.Tensor) -> dict[int, Callable[..., Any]] | None:
    """The dict of the gradient hooks of a tensor, to which torch adds; None before the first."""
    hooks: dict[int, Callable[..., Any]] | None = tensor._backward_hooks
    return hooks


SCALER_START = "_lazy_init_scale_growth_tracker"  # of `GradScaler`: makes its scale on its device
