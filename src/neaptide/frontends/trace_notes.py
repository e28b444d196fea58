"""Annotations on what is traced: the submodule, the phase, and which forward op a backward node belongs to."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.frontends import _torch_private as private


@contextlib.contextmanager
def noted_modules(paths: Mapping[int, str]) -> Iterator[None]:
    """Note the dotted module path on what is traced inside each submodule; `paths` goes by `id(module)`."""
    open_notes: list[tuple[int, Any]] = []

    def enter(module: torch.nn.Module, _inputs: Any) -> None:
        if id(module) in paths:
            note = private.annotate({"module": paths[id(module)]})
            note.__enter__()
            open_notes.append((id(module), note))

    def leave(module: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        while open_notes and id(module) in paths:
            owner, note = open_notes.pop()
            note.__exit__(None, None, None)
            if owner == id(module):
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


@contextlib.contextmanager
def noted_backward() -> Iterator[None]:
    """Note the backward phase, and link each backward node to its forward line."""
    backward, grad = torch.autograd.backward, torch.autograd.grad

    def linked(tensors: Any) -> None:
        roots = [t.grad_fn for t in pytree.tree_leaves(tensors) if isinstance(t, torch.Tensor) and t.grad_fn]
        private.link_backward_to_forward(roots)

    def backward_with_note(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        linked(tensors)
        with private.annotate({"phase": "backward"}):
            return backward(tensors, *args, **kwargs)

    def grad_with_note(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        linked(outputs)
        with private.annotate({"phase": "backward"}):
            return grad(outputs, *args, **kwargs)

    torch.autograd.backward, torch.autograd.grad = backward_with_note, grad_with_note
    try:
        yield
    finally:
        torch.autograd.backward, torch.autograd.grad = backward, grad
