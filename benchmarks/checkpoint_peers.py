"""What `torch.utils.checkpoint` makes of a model: by block, by about sqrt(n) segments, and selectively.

The blocks of a model are the modules that its outermost `ModuleList`s and `Sequential`s hold; a list in a list is opened,
and a `Sequential` of bare layers is one block. So: the layers of a transformer, the residual blocks of a ResNet, the
double convolutions of a U-Net, the layers and norms that a DenseNet is strung from, the layers of an MLP. A recurrent
model has none. Segments are runs of consecutive blocks of one list, each handed what the one before returns; a model
whose lists are not strung like that (U-Nets) cannot be run so, and says so by failing or by another loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from neaptide.frontends.state.state_finder import find_state

aten = torch.ops.aten
KEPT = frozenset(
    {
        aten.mm.default,
        aten.bmm.default,
        aten.addmm.default,
        aten.baddbmm.default,
        aten.convolution.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,  # noqa: SLF001 - an operator
        aten._scaled_dot_product_flash_attention.default,  # noqa: SLF001
        aten._scaled_dot_product_efficient_attention.default,  # noqa: SLF001
    }
)
"""What the selective peer keeps: matrix products, convolutions and attention."""


class Segment(nn.Module):
    """Consecutive blocks as one; what is asked of a block is asked of the first."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("blocks")[0], name)

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        for block in self.blocks:
            made = block(x, *args, **kwargs)
            x = made[0] if isinstance(made, tuple) else made
        return made


def policy(_context: Any, operation: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    """Keep the dear, recompute the cheap."""
    return CheckpointPolicy.MUST_SAVE if operation in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def by_block(step: Callable[..., Any]) -> int:
    """Checkpoint every block; gives their number."""
    found = [block for container in containers(step) for block in blocks_of(container, is_outermost=True)]
    for block in found:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    return len(found)


def selectively(step: Callable[..., Any]) -> int:
    """Checkpoint every block but for what `KEPT` names; gives the number of blocks."""
    found = [block for container in containers(step) for block in blocks_of(container, is_outermost=True)]
    for block in found:
        contexts = partial(create_selective_checkpoint_contexts, policy)
        block.forward = partial(checkpoint, block.forward, use_reentrant=False, context_fn=contexts)
    return len(found)


def by_segments(step: Callable[..., Any]) -> int:
    """Checkpoint runs of about sqrt(n) blocks; gives the number of runs (Chen et al. 2016)."""
    runs = 0
    for container in [inner for outer in containers(step) for inner in chains(outer)]:
        blocks = list(container.children())
        length = math.ceil(math.sqrt(len(blocks)))
        segments = [Segment(blocks[at : at + length]) for at in range(0, len(blocks), length)]
        del container[len(segments) :]
        for position, segment in enumerate(segments):
            segment.forward = partial(checkpoint, segment.forward, use_reentrant=False)
            container[position] = segment
        runs += len(segments)
    return runs


def containers(step: Callable[..., Any]) -> list[nn.Sequential | nn.ModuleList]:
    """The outermost lists of at least two modules in the models of a step; those of bare layers only without others."""
    pending = list(find_state(step).modules.values())
    found: list[nn.Sequential | nn.ModuleList] = []
    while pending:
        module = pending.pop(0)
        if isinstance(module, (nn.Sequential, nn.ModuleList)) and len(module) > 1:
            found.append(module)
        else:
            pending[:0] = module.children()
    of_blocks = [one for one in found if any(list(child.children()) for child in one.children())]
    return of_blocks or found


def blocks_of(container: nn.Module, *, is_outermost: bool) -> Iterator[nn.Module]:
    """The modules with parameters that a list holds, lists in it opened."""
    children = list(container.children())
    is_list = isinstance(container, nn.ModuleList)
    if not is_outermost and not is_list and any(not list(child.children()) for child in children):
        yield container
        return
    for child in children:
        if isinstance(child, (nn.Sequential, nn.ModuleList)):
            yield from blocks_of(child, is_outermost=False)
        elif any(True for _ in child.parameters()):
            yield child


def chains(container: nn.Sequential | nn.ModuleList) -> Iterator[nn.Sequential | nn.ModuleList]:
    """The list itself, or the lists in it where it holds nothing else."""
    inner = [child for child in container.children() if isinstance(child, nn.Sequential) and len(child) > 1]
    if len(inner) == len(container) and all(
        list(child.children()) for one in inner for child in one.children()
    ):
        yield from inner
    else:
        yield container


PEERS = {"by block": by_block, "by segments": by_segments, "selective": selectively}
