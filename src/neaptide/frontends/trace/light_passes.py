"""Leaves out of a run what repeats operations but runs no code of the user's: backward pass and update."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.frontends import _torch_private as private
from neaptide.frontends.objects.places import Replacement
from neaptide.frontends.recording.recording import Notes
from neaptide.frontends.source.users_code import class_file, is_library_file, names_in
from neaptide.frontends.state.step_state import StepState


def has_plain_update(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an update is a library's arithmetic alone: no class and no hook of the user's takes part."""
    hooks = private.optimizer_hooks(optimizer).values()
    return is_library_file(class_file(type(optimizer))) and not any(hooks)


class LightPasses:
    """Stands in for the backward pass and the update.

    Gradients come to exist without being computed. A pass in which Python of the user's may run is not left out: one
    with an `autograd.Function` on its way, with hooks, or with a class of optimizer that is the user's own.
    """

    def __init__(self, state: StepState, notes: Notes) -> None:
        self.left_out: set[str] = set()
        self._notes = notes
        self._optimizers = [o for o in state.optimizers.values() if has_plain_update(o)]
        names = (name for code in state.codes for name in names_in(code))
        self._has_hooks = any("hook" in name or name == "retain_grad" for name in names) or any(
            any(private.parameter_hooks(slot.current())) for slot in state.tensors
        )

    def replacements(self) -> Iterator[Replacement]:
        """What stands in."""
        yield torch.autograd, "backward", self._backward
        yield torch.autograd, "grad", self._grad
        for optimizer in self._optimizers:
            yield optimizer, "step", self._step

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            leaves = self._leaves_behind(tensors)
            if leaves is None or any(args[2:]) or any(kwargs.values()):
                return original(tensors, *args, **kwargs)
            self.left_out.add("backward")
            with self._notes.noted(phase="backward"):
                for leaf in leaves:
                    if leaf.grad is None:
                        leaf.grad = torch.empty_like(leaf)
            return None

        return backward

    def _grad(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if self._leaves_behind(outputs) is None or args or kwargs:
                return original(outputs, inputs, *args, **kwargs)
            self.left_out.add("backward")
            with self._notes.noted(phase="backward"):
                return tuple(torch.empty_like(leaf) for leaf in pytree.tree_leaves(inputs))

        return grad

    def _step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            if args or kwargs:
                return original(*args, **kwargs)
            self.left_out.add("optimizer")
            return None

        return step

    def _leaves_behind(self, roots: Any) -> list[torch.Tensor] | None:
        """The leaf tensors that a backward pass would reach; None where it would run Python on its way."""
        if self._has_hooks:
            return None
        tensors = [t for t in pytree.tree_leaves(roots) if isinstance(t, torch.Tensor)]
        found = [t for t in tensors if t.grad_fn is None and t.requires_grad]
        for node in private.autograd_nodes(tensors):
            if isinstance(node, private.PYTHON_NODE):
                return None
            if hasattr(node, "variable"):
                found.append(node.variable)
        return found
