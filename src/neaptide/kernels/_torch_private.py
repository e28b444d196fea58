"""Private PyTorch names of this room, resolved in one place.

Checked against torch 2.11 to 2.15.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from neaptide.errors import UnsupportedTorch


def resolve(path: str) -> Any:
    """The object of a dotted path below `torch`, whose module is imported; `UnsupportedTorch` where it is missing."""
    module, _, name = path.rpartition(".")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of what Inductor imports
            return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UnsupportedTorch(
            f"torch {torch.__version__} lacks {path}",
            why="fused operations are compiled by Inductor",
            next_step='leave lowering out, or use lowering="aten"',
        ) from error


def decompositions() -> dict[Any, Any]:
    """How Inductor takes operations apart."""
    table: dict[Any, Any] = resolve("torch._inductor.decomposition.select_decomp_table")()
    return table


def compile_inner(module: torch.fx.GraphModule, fakes: list[Any], fake_mode: Any) -> Any:
    """What Inductor makes of a functional graph, without the checks of its own wrapper at each call."""
    config = importlib.import_module("torch._inductor.config")
    guards = importlib.import_module("torch._guards")
    passes = resolve("torch._inductor.fx_passes.joint_graph.joint_graph_passes")
    virtualized = resolve("torch._inductor.virtualized.V")
    compile_fx = resolve("torch._inductor.compile_fx.compile_fx_inner")
    with (
        guards.tracing(guards.TracingContext(fake_mode)),
        config.patch(size_asserts=False, nan_asserts=False, alignment_asserts=False, scalar_asserts=False),
        torch.no_grad(),
    ):
        with virtualized.set_fake_mode(fake_mode):
            passes(module)  # gradients of losses become arithmetic instead of scattered writes
        compiled = compile_fx(module, fakes)
    return getattr(compiled, "current_callable", None) or compiled


def count_of_modes() -> Callable[[], int]:
    """What tells how many dispatch modes are active."""
    count: Callable[[], int] = resolve("torch._C._len_torch_dispatch_stack")
    return count


def no_modes() -> AbstractContextManager[Any]:
    """A context in which no dispatch mode of the caller is active."""
    found: AbstractContextManager[Any] = resolve("torch.utils._python_dispatch._disable_current_modes")()
    return found


def fake_tensors() -> Any:
    """A mode under which tensors have no bytes."""
    return resolve("torch._subclasses.fake_tensor.FakeTensorMode")()
