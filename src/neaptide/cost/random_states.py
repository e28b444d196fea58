"""Random numbers drawn a second time: the generator is put back to where it was, and afterwards to where it is.

States are kept as `bytes` of Python, outside of tensors: 5,056 bytes each for the CPU's generator, 16 for CUDA's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def cards_in_use() -> list[str]:
    """Cards that this process has begun to use; to ask for others' generators would begin it."""
    cuda = range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)  # type: ignore[no-untyped-call]
    return [f"cuda:{index}" for index in cuda]


def random_devices() -> list[str]:
    """Devices whose default generators may be drawn from."""
    return ["cpu", *cards_in_use()]


def random_state(device: torch.device | str) -> bytes:
    """The state of the default random generator of a device."""
    where = torch.device(device)
    state = torch.cuda.get_rng_state(where) if where.type == "cuda" else torch.get_rng_state()
    # Read where it lies: any way through an operation would be counted among those of the step.
    return ctypes.string_at(state.data_ptr(), state.numel())


def set_random_state(device: torch.device | str, state: bytes) -> None:
    """Put the default random generator of a device into a state that `random_state` gave."""
    where = torch.device(device)
    numbers = torch.frombuffer(bytearray(state), dtype=torch.uint8)
    if where.type == "cuda":
        torch.cuda.set_rng_state(numbers, where)
    else:
        torch.set_rng_state(numbers)


@contextmanager
def drawn_again(device: torch.device | str, state: bytes) -> Iterator[None]:
    """Within, the generator of a device draws as it did from a state; it draws on from its own afterwards."""
    now = random_state(device)
    set_random_state(device, state)
    try:
        yield
    finally:
        set_random_state(device, now)
