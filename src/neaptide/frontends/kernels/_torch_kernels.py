"""Private PyTorch names around kernels: which there are, which are chosen, and how one is run while a step is traced."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from neaptide.frontends._torch_private import no_modes, resolve


@functools.cache
def has_python_kernel(operation: Any) -> bool:
    """Whether the fake kernel of an operation may be one of PyTorch's in Python, and not the real one's own."""
    tables = ("decomposition_table", "meta_table")
    return any(operation in resolve("torch._decomp", table) for table in tables)


@contextlib.contextmanager
def bare_kernels(*, draws: bool) -> Iterator[None]:
    """Operations inside run on real tensors, unseen by modes and autocast, and random numbers go on as they were.

    Args:
        draws: they may draw random numbers.
    """
    with (
        no_modes(),
        resolve("torch._C", "DisableTorchFunction")(),
        resolve("torch._C", "_DisableAutocast")(),
        torch.no_grad(),
        torch.random.fork_rng(devices=(), enabled=draws),
    ):
        yield


def kernel_flags() -> tuple[bool, ...]:
    """What decides, for the whole thread, which kernel of an operation runs."""
    return (_is_mkldnn_on(), torch.are_deterministic_algorithms_enabled())


def kernel_choices() -> dict[str, Callable[[], Any]]:
    """Flags by which PyTorch chooses among operations, not inside of one, by their names."""
    attention = torch.backends.cuda
    return {
        "backends.mkldnn": resolve("torch._C", "_get_mkldnn_enabled"),
        "backends.cudnn": resolve("torch._C", "_get_cudnn_enabled"),
        "backends.mha fast path": torch.backends.mha.get_fastpath_enabled,
        "flash attention": attention.flash_sdp_enabled,
        "memory-efficient attention": attention.mem_efficient_sdp_enabled,
        "attention in plain operations": attention.math_sdp_enabled,
        "cudnn attention": attention.cudnn_sdp_enabled,
    }


_is_mkldnn_on = resolve("torch._C", "_get_mkldnn_enabled")
