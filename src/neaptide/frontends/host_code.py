"""Host code behind a program: the last statements of a step, which count, log, print or step a scheduler.

They cannot be part of the program, and what they read is known once it has run. So the step is cut in two: its head is
captured, and its tail runs as it is written behind each call, on the user's own objects and on the real tensors that
the head returns. Where the cut is allowed, and why: `docs/adr/0010-host-code-behind-the-program.md`.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.errors import CaptureError
from neaptide.frontends.scalars import is_plain
from neaptide.frontends.split_source import Cut, StepSource
from neaptide.frontends.state_finder import find_state
from neaptide.frontends.step_slots import present_pattern
from neaptide.frontends.step_state import StepState
from neaptide.frontends.step_trace import trace_step
from neaptide.frontends.trace_watch import StateWatch
from neaptide.frontends.users_code import class_file, is_library_file, names_in

_MUTABLE = (list, dict, OrderedDict, defaultdict, deque)


@dataclass(frozen=True)
class HostCode:
    """The two parts of a step.

    Attributes:
        head: what is captured.
        cut: number of the first statement behind it.
        parts: the functions.
    """

    head: Callable[..., Any]
    cut: int
    parts: Cut
    _bind: Callable[..., tuple[Any, ...]]
    tail: Callable[..., Any]

    def finish(self, result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run the tail behind a call of the head; gives what the step returns.

        Args:
            result: what the head returned.
            args: of the call.
            kwargs: likewise.
        """
        went_on, content = result
        return self.tail(*self._bind(*args, **kwargs), *content) if went_on else content

    def describe(self) -> str:
        """What happens, in words, for the notes of a report."""
        return f"the statements from {self.parts.location} on run behind the program, as they are written"

    def watched_head(self, stepped: set[int], state: StepState) -> Callable[..., Any]:
        """The head for a trace; refuses what cannot be handed from head to tail.

        Args:
            stepped: filled with the ids of the optimizers that the head steps.
            state: of the step.
        """

        def head(*args: Any, **kwargs: Any) -> Any:
            before = pytree.tree_flatten((args, kwargs))
            optimizers = state.optimizers.values()
            handles = [o.register_step_pre_hook(lambda o, *_: stepped.add(id(o))) for o in optimizers]
            try:
                result = self.head(*args, **kwargs)
            finally:
                for handle in handles:
                    handle.remove()
            after = pytree.tree_flatten((args, kwargs))
            if before[1] != after[1] or any(a is not b for a, b in zip(before[0], after[0], strict=True)):
                raise self._refusal("it changes the lists or dicts that it was called with")
            if result[0]:
                self._refuse_shared(result[1])
            return result

        return head

    def refuse_odd_variables(self, result_spec: Any, constants: Mapping[int, Any]) -> None:
        """Refuse a variable whose content would be that of the capture for ever.

        Args:
            result_spec: structure of what the head returned.
            constants: its leaves that are no tensors, numbers of the program or objects of the step.

        Raises:
            CaptureError: naming the variable.
        """
        went_on, content = pytree.tree_unflatten(list(range(result_spec.num_leaves)), result_spec)
        if constants.get(went_on) is not True:
            return
        for name, leaves in zip(self.parts.variables, content, strict=True):
            for leaf in pytree.tree_leaves(leaves):
                if leaf in constants and not (is_plain(constants[leaf]) or _is_fixed(constants[leaf])):
                    raise self._refusal(f"its variable {name} holds a {type(constants[leaf]).__name__}")

    def refuse_training(self, stepped: set[int], step: StepState, variables: Iterable[Any]) -> None:
        """Refuse a cut that leaves a backward pass or an update behind the program.

        Args:
            stepped: ids of the optimizers that the head steps.
            step: state of the whole step.
            variables: objects of the step that the head hands to the tail.

        Raises:
            CaptureError: saying what would come behind the program.
        """
        found = find_state(self.tail, list(step.optimizers.values()))
        reached = find_state(self.tail)
        names = {name for code in found.codes for name in names_in(code)}
        if "backward" in names or "autograd" in names:
            raise self._refusal("a backward pass comes after it")
        held = [o for o in (*reached.optimizers.values(), *variables) if isinstance(o, torch.optim.Optimizer)]
        if "step" in names and any(id(o) not in stepped for o in held):
            raise self._refusal("an optimizer's update comes after it")

    def _refuse_shared(self, variables: Sequence[Any]) -> None:
        """Lists and dicts are made anew for each call, which is right for those that the head itself makes."""
        for name, content in zip(self.parts.variables, variables, strict=True):
            if isinstance(content, _MUTABLE) and sys.getrefcount(content) > _ALONE:
                raise self._refusal(f"its variable {name} is a {type(content).__name__} that is kept elsewhere")
            waiting = [content]
            while waiting:
                item = waiting.pop()
                inner = item.values() if isinstance(item, dict) else item
                if isinstance(item, (*_MUTABLE, tuple)):
                    for part in inner:
                        if isinstance(part, _MUTABLE) and sys.getrefcount(part) > _ALONE:
                            raise self._refusal(f"its variable {name} holds a list or dict that is kept elsewhere")
                        waiting.append(part)

    def _refusal(self, why: str) -> CaptureError:
        return CaptureError("host code between tensor operations", where=self.parts.location, why=why)


def _probe() -> int:
    """References to something that one container holds and one loop variable names."""
    held = [[]]  # type: ignore[var-annotated]
    counts = [0]
    for content in held:
        counts[0] = sys.getrefcount(content)
    return counts[0]


_ALONE = _probe()


def _is_fixed(item: Any) -> bool:
    """Whether something is the same object in every call: a module, a library's class or function."""
    if isinstance(item, types.ModuleType):
        return True
    if isinstance(item, type):
        return is_library_file(class_file(item))
    if isinstance(item, types.FunctionType):
        return is_library_file(item.__code__.co_filename)
    return isinstance(item, types.BuiltinFunctionType) and isinstance(item.__self__, types.ModuleType)


class _FirstEffect(BaseException):
    """Ends a trace at the first statement that writes Python state; nothing of the user's may catch it."""


def cut_behind(
    step: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], extra: Any
) -> HostCode:
    """Cut a step at its first statement that has an effect on the host, or fails to be traced.

    Args:
        step: could not be captured as a whole.
        args: of the call.
        kwargs: likewise.
        extra: further state, as for `find_state`.

    Raises:
        LookupError: it cannot be cut; the text says why.
    """
    function, rebuild = _unwrapped(step)
    source = StepSource(function)
    state = find_state(step, extra)
    reached = 0
    watch: StateWatch | None = None
    groups: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def mark(number: int) -> None:
        nonlocal reached, watch
        if watch is None:
            watch = StateWatch(state)
            groups.extend((g, dict(g)) for o in state.optimizers.values() for g in o.param_groups)
        elif watch.written() or any(_changed(*group) for group in groups):
            raise _FirstEffect
        reached = number

    try:
        trace_step(rebuild(source.marked(mark)), args, kwargs, state, present_pattern(state))
    except (_FirstEffect, CaptureError):
        if not reached:
            raise LookupError("its first statement is such host code") from None
        return _at(function, rebuild, source, reached)
    raise LookupError("no statement of the step itself is host code")


def cut_again(host: HostCode, step: Callable[..., Any]) -> HostCode:
    """The same cut of another step of the same make.

    Raises:
        LookupError: it cannot be cut; the text says why.
    """
    function, rebuild = _unwrapped(step)
    source = StepSource(function)
    if host.cut >= source.length:
        raise LookupError("the step has fewer statements")
    return _at(function, rebuild, source, host.cut)


def _at(
    function: types.FunctionType, rebuild: Callable[[types.FunctionType], Any], source: StepSource, number: int
) -> HostCode:
    del function
    parts = source.cut(number)
    return HostCode(rebuild(parts.head), number, parts, rebuild(parts.bind), parts.tail)


def _changed(now: dict[str, Any], then: dict[str, Any]) -> bool:
    return now.keys() != then.keys() or any(now[key] is not then[key] for key in then)


def _unwrapped(step: Any) -> tuple[types.FunctionType, Callable[[types.FunctionType], Any]]:
    """The function behind a step, and how a callable like the step is made of another function."""
    if isinstance(step, functools.partial):
        function, rebuild = _unwrapped(step.func)
        return function, lambda made: functools.partial(rebuild(made), *step.args, **step.keywords)
    if isinstance(step, types.MethodType) and isinstance(step.__func__, types.FunctionType):
        return _plain(step.__func__), lambda made: types.MethodType(made, step.__self__)
    if isinstance(step, types.FunctionType):
        return _plain(step), lambda made: made
    call = getattr(type(step), "__call__", None)  # noqa: B004 - the function itself is wanted
    if isinstance(call, types.FunctionType) and not isinstance(step, torch.nn.Module):
        return _plain(call), lambda made: types.MethodType(made, step)
    raise LookupError("the step is no function with statements of its own")


def _plain(function: types.FunctionType) -> types.FunctionType:
    if hasattr(function, "__wrapped__"):
        raise LookupError("a decorator is around the step")
    return function
