"""Leaves out of a run what repeats operations but runs no code of the user's: backward pass and update."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.frontends import _torch_private as private
from neaptide.frontends.recording.notes import Notes
from neaptide.frontends.source.users_code import class_file, is_library_file, names_in
from neaptide.frontends.state.step_state import StepState


def has_plain_update(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an update is a library's arithmetic alone: no class and no hook of the user's takes part."""
    return is_library_file(class_file(type(optimizer))) and not any(
        private.optimizer_hooks(optimizer).values()
    )


class LightPasses:
    """Stands in for the backward pass and the update while it is open.

    Gradients come to exist without being computed. A pass in which Python of the user's may run is not left out: one
    with an `autograd.Function` on its way, with hooks, or with a class of optimizer that is the user's own.

    Args:
        state: what the step works on.
        notes: of the trace.

    Attributes:
        left_out: the phases of which something was left out.
    """

    def __init__(self, state: StepState, notes: Notes) -> None:
        self.left_out: set[str] = set()
        self._state = state
        self._notes = notes
        # Now: a trace adds hooks of its own.
        self._optimizers = [o for o in state.optimizers.values() if has_plain_update(o)]
        self._has_hooks = any(_is_of_hooks(name) for code in state.codes for name in names_in(code)) or any(
            any(private.parameter_hooks(slot.current())) for slot in state.tensors
        )

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """While the context is open, the passes are left out."""
        backward, grad = torch.autograd.backward, torch.autograd.grad
        steps = [(optimizer, optimizer.step) for optimizer in self._optimizers]

        @functools.wraps(backward)
        def light_backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            leaves = self._leaves_behind(tensors)
            if leaves is None or any(args[2:]) or any(kwargs.values()):
                return backward(tensors, *args, **kwargs)
            self.left_out.add("backward")
            with self._notes.noted(phase="backward"):
                for leaf in leaves:
                    if leaf.grad is None:
                        leaf.grad = torch.empty_like(leaf)
            return None

        @functools.wraps(grad)
        def light_grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if self._leaves_behind(outputs) is None or args or kwargs:
                return grad(outputs, inputs, *args, **kwargs)
            self.left_out.add("backward")
            with self._notes.noted(phase="backward"):
                return tuple(torch.empty_like(leaf) for leaf in pytree.tree_leaves(inputs))

        torch.autograd.backward, torch.autograd.grad = light_backward, light_grad
        for optimizer, step in steps:
            optimizer.step = self._light_step(step)  # type: ignore[method-assign]
        try:
            yield
        finally:
            torch.autograd.backward, torch.autograd.grad = backward, grad
            for optimizer, step in steps:
                optimizer.step = step  # type: ignore[method-assign]

    def _light_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def light_step(*args: Any, **kwargs: Any) -> Any:
            if args or kwargs:
                return step(*args, **kwargs)
            self.left_out.add("optimizer")
            return None

        return light_step

    def _leaves_behind(self, roots: Any) -> list[torch.Tensor] | None:
        """The leaf tensors that a backward pass would reach; None where it would run Python on its way."""
        if self._has_hooks:
            return None
        tensors = [t for t in pytree.tree_leaves(roots) if isinstance(t, torch.Tensor)]
        found = [t for t in tensors if t.grad_fn is None and t.requires_grad]
        waiting: list[Any] = [t.grad_fn for t in tensors if t.grad_fn is not None]
        seen = set(waiting)
        while waiting:
            node = waiting.pop()
            if private.is_python_node(node):
                return None
            if hasattr(node, "variable"):
                found.append(node.variable)
            following = {item for item, _ in node.next_functions if item is not None} - seen
            seen |= following
            waiting.extend(following)
        return found


def _is_of_hooks(name: str) -> bool:
    return "hook" in name or name == "retain_grad"
