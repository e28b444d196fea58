"""The state of torch's default generator as operations: a program reads and sets it in its place."""

from __future__ import annotations

from typing import Final

import torch

GET: Final = "neaptide::get_rng_state"
SET: Final = "neaptide::set_rng_state"
SEED: Final = "neaptide::manual_seed"
_STATE_BYTES: Final = torch.default_generator.get_state().numel()
torch.library.define(GET, "() -> Tensor")
torch.library.define(SET, "(Tensor state) -> ()")
torch.library.define(SEED, "(Tensor anchor, SymInt seed) -> ()")


@torch.library.impl(GET, "CompositeExplicitAutograd")
def _get() -> torch.Tensor:
    return torch.default_generator.get_state()


@torch.library.impl(SET, "CompositeExplicitAutograd")
def _set(state: torch.Tensor) -> None:
    torch.default_generator.set_state(state)


@torch.library.impl(SEED, "CompositeExplicitAutograd")
def _seed(anchor: torch.Tensor, seed: int) -> None:  # noqa: ARG001 - an operation without a tensor runs in a trace, too
    torch.manual_seed(seed)


@torch.library.register_fake(GET)  # type: ignore[untyped-decorator]
def _fake_state() -> torch.Tensor:
    return torch.empty(_STATE_BYTES, dtype=torch.uint8, device="cpu")


@torch.library.register_fake(SET)  # type: ignore[untyped-decorator]
def _fake_set(state: torch.Tensor) -> None:  # noqa: ARG001 - its operand
    return


@torch.library.register_fake(SEED)  # type: ignore[untyped-decorator]
def _fake_seed(anchor: torch.Tensor, seed: int) -> None:  # noqa: ARG001 - its operands
    return
