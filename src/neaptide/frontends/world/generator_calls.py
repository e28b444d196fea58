"""Calls that read or set the state of torch's default generator, as operations of the program.

`torch.get_rng_state`, `torch.set_rng_state` and `torch.manual_seed` take their place among the draws of the step, and
`torch.random.fork_rng` is made of them. Where CUDA is in use, seeding also concerns its generators, whose draws have an
order of their own: then the call changes the generator under the trace, which is noticed and refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch

from neaptide.cost import generator_ops  # noqa: F401 - registers the operations
from neaptide.frontends.source.asker import users_frame
from neaptide.frontends.world.stand_ins import is_torch_state

_LARGEST: Final = (1 << 63) - 1  # that an operation takes
_SEEDS: Final = 1 << 64  # a negative seed stands for the one so much larger
GENERATOR_CALLS: Final = ("get_rng_state", "set_rng_state", "manual_seed")


def generator_stand_ins() -> list[tuple[Any, Any]]:
    """Pairs of the functions and what stands in for them in a trace, for calls of the user's code."""
    operations: dict[str, Callable[..., Any]] = {
        "get_rng_state": torch.ops.neaptide.get_rng_state.default,
        "set_rng_state": _set,
    }
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        operations["manual_seed"] = _seed
    return [
        (original, _recorded(original, operation))
        for name, operation in operations.items()
        for original in {getattr(torch, name), getattr(torch.random, name)}
    ]


def _recorded(original: Callable[..., Any], operation: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if users_frame(1, hands_on=is_torch_state) is None:
            return original(*args, **kwargs)
        return operation(*args, **kwargs)

    return stand_in


def _set(new_state: torch.Tensor) -> None:
    torch.ops.neaptide.set_rng_state.default(new_state)


def _seed(seed: Any) -> torch.Generator:
    if not isinstance(seed, torch.SymInt):
        seed = int(seed)
        seed -= _SEEDS if seed > _LARGEST else 0  # the same seed, as torch takes it
    torch.ops.neaptide.manual_seed.default(torch.empty(0, device="cpu"), seed)
    return torch.default_generator
