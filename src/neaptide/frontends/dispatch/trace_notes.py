"""Keeps the notes of a trace: the submodule, the phase, and which forward op a backward node belongs to."""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.frontends import _torch_private as private
from neaptide.frontends.kernels.branching_gradients import BRANCHING, gradients_of_eager
from neaptide.frontends.objects.places import Replacement
from neaptide.frontends.recording.recording import Notes


@contextlib.contextmanager
def noted_modules(paths: Mapping[int, str], notes: Notes) -> Iterator[None]:
    """Note the dotted path of the submodule that runs; `paths` goes by `id(module)`."""
    outside: list[tuple[int, str]] = []  # modules that run, each with the path around it

    def enter(module: torch.nn.Module, _inputs: Any) -> None:
        if id(module) in paths:
            outside.append((id(module), notes.module))
            notes.module = paths[id(module)]

    def leave(module: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        while outside and id(module) in paths:
            inner, notes.module = outside.pop()
            if inner == id(module):
                break

    handles = [
        torch.nn.modules.module.register_module_forward_pre_hook(enter),
        torch.nn.modules.module.register_module_forward_hook(leave, always_call=True),
    ]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks"
            )
            yield
    finally:
        for handle in handles:
            handle.remove()


def noted_backward(notes: Notes) -> Iterator[Replacement]:
    """Note the backward phase, and the number of the autograd node that runs, which its forward op has, too."""

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def noted(roots: Any, *args: Any, **kwargs: Any) -> Any:
            _number_nodes(roots, notes)
            keeps = bool(signature.bind(roots, *args, **kwargs).arguments.get("create_graph"))
            with notes.noted(phase="backward", is_graph_kept=keeps):
                return function(roots, *args, **kwargs)

        return noted

    for name in ("backward", "grad"):
        yield torch.autograd, name, make


def _number_nodes(roots: Any, notes: Notes) -> None:
    """Makes the autograd nodes after tensors note their number while they run."""
    for node in private.autograd_nodes(t for t in pytree.tree_leaves(roots) if isinstance(t, torch.Tensor)):
        number = private.sequence_of(node)
        node.register_prehook(functools.partial(_begin, notes, number))
        node.register_hook(functools.partial(_end, notes))
        if node.name() in BRANCHING:
            node.register_hook(functools.partial(gradients_of_eager, notes, number, node))


def _begin(notes: Notes, number: int, _gradients: Any) -> None:
    notes.sequences.append(number)
    if not notes.is_graph_kept:
        notes.consumed.add(number)


def _end(notes: Notes, _inputs: Any, _outputs: Any) -> None:
    if notes.sequences:  # a backward inside of this node's may have numbered it when it ran already
        notes.sequences.pop()
