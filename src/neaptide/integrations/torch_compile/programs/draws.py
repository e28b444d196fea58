"""Random numbers that a plan draws a second time: the state of the generator is kept at the first draw.

A state is a tensor over bytes of Python, so that autograd saves it as it saves any other, and no allocator counts it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from neaptide.cost.random_states import drawn_again, random_state
from neaptide.integrations.torch_compile._torch_private import as_in_eager
from neaptide.integrations.torch_compile.joint.joint_graph import JointGraph


def kept_state(device: str) -> torch.Tensor:
    """The state of the generator of a device."""
    return torch.frombuffer(bytearray(random_state(device)), dtype=torch.uint8)


def draw_again(
    state: torch.Tensor, device: str, operation: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """Run an operation under a state that was kept; the generator draws on from its own afterwards."""
    with drawn_again(device, state.numpy().tobytes()):
        return operation(*args, **kwargs)


def states_of(joint: JointGraph, sequence: Iterable[int]) -> dict[fx.Node, fx.Node]:
    """By node that a sequence draws with more than once, a new node of the joint graph for the state before it. O(executions)."""
    counts = Counter(sequence)
    return {
        joint.node_of[node.id]: _state_before(joint.node_of[node.id], node.effects.rng)
        for node in joint.graph.nodes
        if node.effects.rng is not None and counts[node.id] > 1
    }


def _state_before(draw: fx.Node, device: str) -> fx.Node:
    with draw.graph.inserting_before(draw):
        state = draw.graph.call_function(kept_state, (device,))
    with as_in_eager():
        size = len(random_state(device))
    made = next(one for one in tree_leaves(draw.meta["val"]) if isinstance(one, torch.Tensor))
    state.meta["val"] = made.new_empty(size, dtype=torch.uint8, device="cpu")
    return state
