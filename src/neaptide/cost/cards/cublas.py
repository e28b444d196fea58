"""What cuBLAS takes from PyTorch's allocator for itself, and keeps (`aten/src/ATen/cuda/CublasHandlePool.cpp`)."""

from __future__ import annotations

import os
import re
from typing import Final

_KIB: Final = 1024
_HOPPER: Final = 9
_WORKSPACE: Final = ":4096:2:16:8"
_HOPPER_WORKSPACE: Final = ":4096:8"
_THREADS: Final = 2
_LIGHT_KIB: Final = 1024


def library_blocks(major: int) -> tuple[int, ...]:
    """Blocks that cuBLAS takes on a card of a major compute capability, in bytes.

    There is a workspace for each thread that calls it. In eager these are two: the one that runs the step and that of autograd's
    backward. The size of one is what `CUBLAS_WORKSPACE_CONFIG` says, else 32 MiB from compute capability 9 on and 8.125 MiB
    before. The first thread has one of cuBLASLt as well, of as many KiB as `CUBLASLT_WORKSPACE_SIZE` says, else 1 MiB: with it,
    predicted and measured peaks of five models were equal to the byte.
    """
    usual = _HOPPER_WORKSPACE if major >= _HOPPER else _WORKSPACE
    one = _bytes_of(os.environ.get("CUBLAS_WORKSPACE_CONFIG", "")) or _bytes_of(usual)
    light = os.environ.get("CUBLASLT_WORKSPACE_SIZE", "")
    return *(_THREADS * (one,)), _KIB * (int(light) if light.isdecimal() else _LIGHT_KIB)


def _bytes_of(config: str) -> int:
    """Bytes of a workspace in the form `:KiB:count`, once or more; 0 for another text."""
    return sum(_KIB * int(size) * int(count) for size, count in re.findall(r":(\d+):(\d+)", config))
