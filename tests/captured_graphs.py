"""Graphs of steps, as captured."""

from collections.abc import Callable, Mapping
from typing import Any

from neaptide.frontends.torch_step import capture_step
from neaptide.ir.graph import Graph


def captured_graphs(steps: Mapping[str, Callable[[], Any]]) -> dict[str, Graph]:
    """By the names of factories, what their steps run once their state exists."""
    found = {}
    for name, factory in steps.items():
        step, batch = factory()
        found[name] = capture_step(step, (batch,)).steady.graph
    return found
