"""What a trace for a card that is not there takes instead of what PyTorch does without one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from neaptide.frontends.card.attention import attention
from neaptide.frontends.card.backward_pass import BackwardPasses
from neaptide.frontends.card.normalisation import batch_norm
from neaptide.frontends.card.pretended import Card, CardIs, current_card
from neaptide.frontends.card.recurrence import recurrent
from neaptide.frontends.objects.places import all_replaced

_KEY = "AutogradCUDA"  # after autocast, and before autograd notes what the operation is made of


@contextlib.contextmanager
def operations_of_card() -> Iterator[None]:
    """The backward pass in Python, and the kernels that the card would get; where none is pretended, recurrent layers alone."""
    card = current_card()
    is_real = torch.cuda.is_initialized() and torch.backends.cudnn.enabled  # type: ignore[no-untyped-call]
    if card is None and not is_real:
        yield
        return
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        # PyTorch looks for their weights by address, and fake ones have none.
        for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
            library.impl(f"{name}.input", recurrent(name), _KEY)
        if card is None:
            yield
            return
        for name, function in _chosen_kernels(card):
            library.impl(name, function, _KEY)
        with all_replaced(BackwardPasses().replacements()), CardIs(card.device):
            yield
    finally:
        library._destroy()  # noqa: SLF001 - a library has no other end


def _chosen_kernels(card: Card) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Operations whose kernel PyTorch chooses by asking the driver, and what they are on the card."""
    yield "scaled_dot_product_attention", attention(card.capability)
    if torch.version.cuda is None:  # a wheel with CUDA knows without a driver
        yield "batch_norm", batch_norm
