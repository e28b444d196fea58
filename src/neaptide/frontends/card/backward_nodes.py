"""One autograd node as PyTorch's engine runs it: hooks before, the node, hooks after, gradients as its inputs want them."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from neaptide.frontends._torch_private import parameter_hooks, resolve
from neaptide.frontends.card import _torch_private as private
from neaptide.frontends.kernels.trial_operands import is_dense
from neaptide.frontends.objects.places import Replacement, replaced

Gradients = list[torch.Tensor | None]

_TWICE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Specify retain_graph=True if you need to backward through the graph a second time."
)
_OWN_REFERENCES = 4  # to a gradient that nobody else has: of the list, of two variables, of `getrefcount`


class _TensorHook(NamedTuple):
    """What was asked for the gradient of a tensor that an operation made."""

    position: int  # among the results of the node
    hooks: dict[int, Callable[..., Any]]  # as the tensor keeps them
    keeper: torch.Tensor | None = None  # that keeps its gradient, and has no hooks here


class BackwardNodes:
    """Runs autograd nodes one by one, with all that was registered on them and on their tensors."""

    def __init__(self) -> None:
        self._hooked: dict[Any, list[_TensorHook]] = {}
        self._is_freed: set[Any] = set()
        self._keeps_missing: set[Any] = set()  # custom functions that want no zeros for what has no gradient

    def replacements(self) -> Iterator[Replacement]:
        """What tells of hooks that no node shows."""
        yield torch.Tensor, "register_hook", self._hook_registered
        yield torch.Tensor, "retain_grad", self._gradient_retained
        yield private.FUNCTION_CONTEXT, "set_materialize_grads", self._zeros_wanted

    def _hook_registered(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def register_hook(tensor: torch.Tensor, hook: Callable[..., Any]) -> Any:
            is_first = private.gradient_hooks(tensor) is None
            handle = original(tensor, hook)
            hooks = private.gradient_hooks(tensor)
            if tensor.grad_fn is not None and is_first and hooks is not None:
                self._hooked.setdefault(tensor.grad_fn, []).append(_TensorHook(tensor.output_nr, hooks))
            return handle

        return register_hook

    def _gradient_retained(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def retain_grad(tensor: torch.Tensor) -> None:
            is_new = tensor.grad_fn is not None and not tensor.retains_grad
            original(tensor)
            if is_new:
                found = _TensorHook(tensor.output_nr, {}, tensor)
                self._hooked.setdefault(tensor.grad_fn, []).append(found)

        return retain_grad

    def _zeros_wanted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def set_materialize_grads(context: Any, value: bool) -> None:
            original(context, value)
            (self._keeps_missing.discard if value else self._keeps_missing.add)(context)

        return set_materialize_grads

    # -- one node ---------------------------------------------------------------------------------------------------

    def before(self, node: Any, gradients: Gradients) -> Gradients:
        """Gradients after the hooks of the tensors that a node made."""
        if is_accumulator(node):
            gradients[0] = _hooked(gradients[0], private.gradient_hooks(node.variable) or {})
            return gradients
        found = self._hooked.get(node, ())
        for hook in found:
            gradients[hook.position] = _hooked(gradients[hook.position], hook.hooks)
        for hook in found:
            if hook.keeper is not None:
                _keep(hook.keeper, gradients[hook.position])
        return gradients

    def run(self, node: Any, gradients: Gradients, *, keeps_graph: bool) -> Gradients:
        """What a node hands to each of its `next_functions`."""
        for hook in hooks_of(node, "register_prehook"):
            answer = hook(tuple(gradients))
            if answer is not None:
                gradients = list(answer) if isinstance(answer, tuple) else [answer]
        after = hooks_of(node, "register_hook")
        given = tuple(gradients) if after else ()
        if is_accumulator(node):
            _accumulate(node.variable, gradients, is_held=bool(after))
            results: Gradients = []
        else:
            results = self._results(node, gradients, keeps_graph)
        edges = node.next_functions
        results = [_fitting(g, edge) for g, edge in zip(results, edges, strict=True)]
        for hook in after:
            answer = hook(tuple(results), given)
            if answer is not None:
                results = list(answer) if isinstance(answer, tuple) else [answer]
        return results

    def _results(self, node: Any, gradients: Gradients, keeps_graph: bool) -> Gradients:
        if node in self._is_freed and _has_saved(node):
            raise RuntimeError(_TWICE)
        if not keeps_graph:
            self._is_freed.add(node)
        if isinstance(node, private.BACKWARD_FUNCTION):
            return self._of_custom(node, gradients)
        kind: Any = type(node)
        mode: AbstractContextManager[Any] = contextlib.nullcontext()
        if not keeps_graph and _has_reserve(kind):
            mode = _ReservesInPlace()  # type: ignore[no-untyped-call]
        with mode:
            found = node(*gradients)
        return list(found) if isinstance(found, tuple) else [found]

    def _of_custom(self, node: Any, gradients: Gradients) -> Gradients:
        if node not in self._keeps_missing:
            made = private.results_of(node)
            gradients = [
                torch.zeros(m.shape, dtype=m.dtype, device=m.device) if g is None else g
                for g, m in zip(gradients, made, strict=True)
            ]
        found = node.apply(*gradients)
        answers = found if isinstance(found, tuple) else (found,)
        needs = node.needs_input_grad
        if len(answers) < len(needs) or any(extra is not None for extra in answers[len(needs) :]):
            raise RuntimeError(
                f"function {node.name()} returned an incorrect number of gradients "
                f"(expected {len(needs)}, got {len(answers)})"
            )
        # Edges are those of tensors alone, and those without gradient lead nowhere.
        wanted = iter([answer for answer, need in zip(answers, needs, strict=False) if need])
        return [None if following is None else next(wanted) for following, _ in node.next_functions]


class _ReservesInPlace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Formulas read what their kernel reserved where it lies, as in the engine where the graph is not kept.

    Such bytes are `uint8`. A formula copies them where the graph is kept; called from Python it takes it for kept.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.clone.default and args[0].dtype == torch.uint8:
            return args[0]
        return func(*args, **(kwargs or {}))


@functools.cache
def _has_reserve(kind: type) -> bool:
    """Whether nodes of a type save a later result of their operation, as what a kernel reserves is."""
    return any(name.startswith("_saved_result") and name[-1] not in "t0" for name in dir(kind))


def is_accumulator(node: Any) -> bool:
    """Whether a node adds to the gradient of a leaf."""
    return bool(node.name() == private.ACCUMULATOR)


def hooks_of(node: Any, register: str) -> list[Callable[..., Any]]:
    """The hooks that `register` put on a node, in order; torch shows them to what registers another one."""
    seen: list[Any] = []

    def show(hooks: Any, _new: Any) -> tuple[Any, None]:
        seen.append(hooks)
        return (OrderedDict() if hooks is None else hooks), None

    with replaced(torch.autograd.Function, "_register_hook", lambda _original: staticmethod(show)):
        getattr(node, register)(show)
    if not seen:
        resolve("torch.autograd.function", "Function._register_hook, called by register_hook")
    return [] if seen[0] is None else list(seen[0].values())


def _hooked(gradient: torch.Tensor | None, hooks: dict[int, Callable[..., Any]]) -> torch.Tensor | None:
    for hook in list(hooks.values()):
        answer = hook(gradient)
        if answer is not None:
            gradient = answer
    return gradient


def _keep(tensor: torch.Tensor, gradient: torch.Tensor | None) -> None:
    """As `retain_grad` has it."""
    if gradient is None:
        return
    if tensor.grad is None:
        tensor.grad = gradient.clone(memory_format=torch.contiguous_format)
    else:
        tensor.grad = tensor.grad + gradient


def _has_saved(node: Any) -> bool:
    if isinstance(node, private.BACKWARD_FUNCTION):
        return bool(private.saved_by(node))
    return any(name.startswith("_raw_saved_") for name in dir(type(node)))


def _fitting(gradient: torch.Tensor | None, edge: tuple[Any, int]) -> torch.Tensor | None:
    """A gradient in the shape and dtype of what it is the gradient of, as the engine hands it on."""
    following, position = edge
    if following is None or gradient is None:
        return None
    return fitting(gradient, private.results_of(following)[position])


def fitting(gradient: torch.Tensor, wanted: Any) -> torch.Tensor:
    """A gradient in the shape, dtype and on the device of what it is the gradient of; `wanted` tells these."""
    shape = tuple(wanted.shape)
    if gradient.dim() != len(shape) or tuple(gradient.shape) != shape:  # sizes of two axes are not compared
        if not _expands(shape, gradient.shape):
            raise RuntimeError(
                f"a gradient has shape {list(gradient.shape)}, and what it is the gradient of has {list(shape)}"
            )
        gradient = gradient.sum_to_size(shape)
    if gradient.is_complex() and not wanted.dtype.is_complex:
        gradient = torch.real(gradient)
    if gradient.dtype != wanted.dtype:
        gradient = gradient.to(wanted.dtype)
    if gradient.device != wanted.device:
        if gradient.dim():
            raise RuntimeError(f"a gradient is on {gradient.device}, not on {wanted.device}")
        gradient = gradient.to(wanted.device)
    return gradient


def _expands(shape: Sequence[Any], larger: Sequence[Any]) -> bool:
    pairs = zip(reversed(shape), reversed(larger), strict=False)
    return len(shape) <= len(larger) and all(own in (1, other) for own, other in pairs)


# -- leaves


def _accumulate(leaf: torch.Tensor, gradients: Gradients, *, is_held: bool) -> None:
    """Put a gradient into `.grad`, or add it there; torch's accumulate_grad.h decides likewise.

    The list is the only place that holds the gradient where nobody else has it, but for what hooks get afterwards
    (`is_held`): then it becomes `.grad` as it is.
    """
    gradient = gradients[0]
    if gradient is None:
        return
    if leaf.grad is None:
        is_owned = not torch.is_grad_enabled() and _is_owned(gradient, is_held) and _lies_as(gradient, leaf)
        leaf.grad = gradient.detach() if is_owned else _copied(gradient, leaf)
    elif torch.is_grad_enabled():
        leaf.grad = leaf.grad + gradient
    else:
        leaf.grad += gradient
    for hook in parameter_hooks(leaf)[1]:
        hook(leaf)


def _is_owned(gradient: torch.Tensor, is_held: bool) -> bool:
    return sys.getrefcount(gradient) <= _OWN_REFERENCES + is_held and private.use_count(gradient) <= 1


def _lies_as(gradient: torch.Tensor, leaf: torch.Tensor) -> bool:
    if not is_dense(leaf.shape, leaf.stride()):
        return gradient.is_contiguous()
    triples = zip(leaf.shape, leaf.stride(), gradient.stride(), strict=True)
    return all(size == 1 or own == other for size, own, other in triples)


def _copied(gradient: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    if not is_dense(leaf.shape, leaf.stride()):
        return gradient.clone(memory_format=torch.contiguous_format)
    return gradient.new_empty_strided(leaf.size(), leaf.stride()).copy_(gradient)
