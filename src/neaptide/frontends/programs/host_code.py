"""Host code after a program: the last statements of a step, which count, log, print or step a scheduler.

They cannot be part of the program, and what they read is known once it has run. So the step is cut in two
(`host_cut`): its head is captured, and its tail runs as it is written after each call, on the user's own objects and
on the real tensors that the head returns. A cut is refused where the tail would train, and where a variable that crosses
the cut would keep its value of the capture for ever.
"""

from __future__ import annotations

import contextlib
import dis
import inspect
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.utils import _pytree as pytree

from neaptide.errors import CaptureError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.objects.batch_objects import leaves_of
from neaptide.frontends.objects.places import Place
from neaptide.frontends.objects.unread import ALL_READ, UnreadNames, is_unread
from neaptide.frontends.objects.values import is_plain
from neaptide.frontends.source.split_source import Cut
from neaptide.frontends.source.users_code import class_file, codes_in, functions_of, is_library_file, names_in
from neaptide.frontends.state.state_finder import find_state
from neaptide.frontends.state.step_slots import hyper_parameters
from neaptide.frontends.state.step_state import StepState
from neaptide.frontends.state.traced import Returned


def schedulers_in(state: StepState) -> Iterator[LRScheduler]:
    """The schedulers that code reaches, with those that they step themselves. O(places)."""
    return _with_inner(place.get() for place in state.watched)


def keys_written_by(scheduler: LRScheduler) -> frozenset[str]:
    """Keys of dicts that the methods of a scheduler store, but for those that only its constructor does."""
    return frozenset(
        key
        for base in type(scheduler).__mro__
        for name, member in vars(base).items()
        if name != "__init__"
        for function in functions_of(member)
        for key in stored_keys(function.__code__)
    )


def stored_keys(code: types.CodeType) -> Iterator[str]:
    """The strings under which code stores something in a dict, as `group["betas"] = ...` does."""
    for part in codes_in(code):
        before: Any = None
        for instruction in dis.get_instructions(part):
            if instruction.opname == "STORE_SUBSCR" and isinstance(before, str):
                yield before
            before = instruction.argval if instruction.opname == "LOAD_CONST" else None


def _with_inner(items: Iterable[Any]) -> Iterator[LRScheduler]:
    for item in items:
        if isinstance(item, LRScheduler):
            yield item
            for content in vars(item).values():
                yield from _with_inner(content if isinstance(content, (list, tuple)) else [content])


# -- the two parts of a step


_STORES = frozenset({"STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL"})
_CELLS = frozenset({"STORE_DEREF", "DELETE_DEREF"})
_MUTABLE = (list, dict, OrderedDict, defaultdict, deque)


@dataclass(frozen=True)
class HostCode:
    """The two parts of a step.

    Attributes:
        head: what is captured.
        bind: takes what the head takes; returns the parameters of the tail.
        tail: what runs after it, bound like the head, to be looked through.
        at: number of the tail's first statement.
        parts: the functions, cut out of `whole`.
        kept: by device, bytes of what it alone works on; None before it was looked at.
    """

    head: Callable[..., Any]
    bind: Callable[..., tuple[Any, ...]]
    tail: Callable[..., Any]
    at: int
    parts: Cut
    whole: types.FunctionType
    kept: Mapping[str, int] | None = None

    def head_state(self, extra: Any, unread: UnreadNames = ALL_READ) -> StepState:
        """What the head works on; `extra` and `unread` as for `find_state`."""
        return find_state(self.head, extra, without=self.whole, unread=unread)

    def _tail_codes(self) -> list[types.CodeType]:
        """Code of the tail and of the user's functions that it calls."""
        found = [self.parts.tail.__code__]
        for callee in filter(_is_users, self._callees()):
            found += find_state(callee, without=self.whole).codes
        return found

    def _callees(self) -> Iterator[Callable[..., Any]]:
        """What the tail calls by name, as far as that can be told without running code."""
        tail = self.parts.tail
        known = {**tail.__globals__}
        for name, cell in zip(tail.__code__.co_freevars, tail.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # a variable that is not assigned yet
                known[name] = cell.cell_contents
        if isinstance(self.tail, types.MethodType):
            known[tail.__code__.co_varnames[0]] = self.tail.__self__
        for root, *attributes in self.parts.calls:
            item = known.get(root)
            for attribute in attributes:
                owner, item = item, inspect.getattr_static(item, attribute, None)
                if isinstance(item, types.FunctionType) and not isinstance(owner, (type, types.ModuleType)):
                    item = types.MethodType(item, owner)
            if callable(item) and item is not self.whole:
                yield item

    def finish(self, result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run the tail after a call of the head, which returned `result`; gives what the step returns."""
        went_on, content = result
        return self.parts.tail(*self.bind(*args, **kwargs), *content) if went_on else content

    def describe(self) -> str:
        """What happens, in words, for the notes of a report."""
        return f"the statements from {self.parts.location} on run after the program, as they are written"

    def watched_head(self, stepped: set[int], state: StepState) -> Callable[..., Any]:
        """The head for a trace; refuses what cannot be handed from head to tail.

        `state` is what the head works on; `stepped` is filled with the ids of the optimizers that it steps.
        """
        kept = {id(place.get()) for place in state.objects}

        def head(*args: Any, **kwargs: Any) -> Any:
            optimizers = [*filter(private.optimizer_hooks, state.optimizers.values())]
            handles = [o.register_step_pre_hook(lambda o, *_: stepped.add(id(o))) for o in optimizers]
            try:
                result = self.head(*args, **kwargs)
            finally:
                for handle in handles:
                    handle.remove()
            if result[0]:
                self._refuse_shared(result[1], kept)
            return result

        return head

    def goes_on(self, returned: Returned) -> bool:
        """Whether the head hands its variables to the tail; else it returns what the step returns."""
        went_on, _ = _positions(returned)
        return returned.constants.get(went_on) is True

    def refuse_odd_variables(self, returned: Returned) -> None:
        """Refuse a variable whose content would be that of the capture for ever, by name."""
        if not self.goes_on(returned):
            return
        _, content = _positions(returned)
        constants = returned.constants
        for name, leaves in zip(self.parts.variables, content, strict=True):
            for leaf in leaves_of(leaves):
                if leaf in constants and not (is_plain(constants[leaf]) or _is_fixed(constants[leaf])):
                    raise self._refusal(f"its variable {name} holds a {type(constants[leaf]).__name__}")

    def refuse_training(self, stepped: set[int], variables: Iterable[Any]) -> None:
        """Refuse a cut that leaves a backward pass or an update after the program.

        `stepped` are the ids of the optimizers that the head steps, `variables` what it hands to the tail.
        """
        if any({"backward", "autograd"} & names_in(code) for code in self._tail_codes()):
            raise self._refusal("a backward pass comes after it")
        updated = [item for item in variables if isinstance(item, torch.optim.Optimizer)]
        for callee in self._callees():
            owner = getattr(callee, "__self__", None)
            if isinstance(owner, torch.optim.Optimizer) and callee.__name__ == "step":
                updated.append(owner)
            if isinstance(owner, torch.amp.GradScaler):
                raise self._refusal("a gradient scaler is used after it")
            reached = find_state(callee, without=self.whole) if _is_users(callee) else StepState()
            if any("step" in names_in(code) for code in reached.codes):
                updated += reached.optimizers.values()
        if any(id(optimizer) not in stepped for optimizer in updated):
            raise self._refusal("an optimizer's update comes after it")

    @property
    def clears_gradients(self) -> bool:
        """Whether the tail may clear the gradients that the head leaves."""
        return any("zero_grad" in names_in(code) for code in self._tail_codes())

    def written_values(self, head: StepState) -> frozenset[str]:
        """Names of the plain values that the tail may write, and the head may read at the next call."""
        return frozenset(place.name for place in self._fed(head))

    def written_numbers(self, head: StepState) -> frozenset[str]:
        """Names of the Python numbers that the tail writes and the head reads at the next call.

        The head is refused if it reads something else that the tail writes: every call would be another program.
        """
        fed = self._fed(head)
        other = next((place for place in fed if type(place.get()) is not float), None)
        if other is not None:
            raise self._refusal(f"it writes {other.name}, which the step reads in front of it")
        return frozenset(place.name for place in fed) | self._written_settings(head)

    def _fed(self, head: StepState) -> list[Place]:
        """Places of plain values that the tail stores something under the name of, and that the head may read."""
        stored = {name for code in self._tail_codes() for name in _stored(code)}
        return [place for place in head.scalars if getattr(place, "key", place.name) in stored]

    def _written_settings(self, head: StepState) -> frozenset[str]:
        """Names of the floats in parameter groups that the tail writes, or a scheduler that it reaches.

        An entry is told by its key in the code that stores it. Where that code writes another entry after all, the
        number is an input that stays as it is.
        """
        by_tail = {key for code in self._tail_codes() for key in stored_keys(code)}
        schedulers = [*schedulers_in(find_state(self.tail, without=self.whole))]
        return frozenset(
            entry.name
            for label, optimizer in head.optimizers.items()
            for keys in [
                by_tail.union(*(keys_written_by(s) for s in schedulers if _has_groups_of(s, optimizer)))
            ]
            for entry in hyper_parameters(label, optimizer)
            if entry.key in keys and type(entry.content) is float
        )

    def _refuse_shared(self, variables: tuple[Any, ...], kept: set[int]) -> None:
        """Lists and dicts are made anew for each call, which is right for those that the head itself makes.

        The state of the step is handed on as it is.
        """
        for position, name in enumerate(self.parts.variables):
            if _shares(variables[position : position + 1], kept, 1):
                raise self._refusal(f"its variable {name} is or holds a list or dict that is kept elsewhere")

    def _refusal(self, why: str) -> CaptureError:
        return CaptureError("host code between tensor operations", where=self.parts.location, why=why)


def _positions(returned: Returned) -> Any:
    """The pair that the head returns, with positions for the leaves."""
    return pytree.tree_unflatten(list(range(returned.spec.num_leaves)), returned.spec)


def _is_users(callee: Callable[..., Any]) -> bool:
    function = getattr(callee, "__func__", callee)
    if isinstance(function, types.FunctionType):
        return not is_library_file(function.__code__.co_filename)
    return not isinstance(function, (type, types.BuiltinFunctionType)) and not is_library_file(
        class_file(type(function))
    )


def _shares(container: Any, kept: set[int], further: int = 0) -> bool:
    """Whether a list or dict inside has an owner besides the container around it and `further` ones."""
    for part in container.values() if isinstance(container, dict) else container:
        if is_unread(part) or id(part) in kept:
            continue
        if isinstance(part, _MUTABLE) and sys.getrefcount(part) > _OWNED_ONCE + further:
            return True
        if isinstance(part, (*_MUTABLE, tuple)) and _shares(part, kept):
            return True
    return False


_OWNED_ONCE = 3  # references to what a container holds, the loop names and the count is asked of


def _is_fixed(item: Any) -> bool:
    """Whether something is the same object in every call: a module, a library's class or function."""
    if isinstance(item, types.ModuleType):
        return True
    if isinstance(item, type):
        return is_library_file(class_file(item))
    if isinstance(item, types.FunctionType):
        return is_library_file(item.__code__.co_filename)
    return isinstance(item, types.BuiltinFunctionType) and isinstance(item.__self__, types.ModuleType)


def _stored(code: types.CodeType) -> Iterator[str]:
    """Attributes, globals and variables of enclosing functions that code writes."""
    for part in codes_in(code):
        for instruction in dis.get_instructions(part):
            name = instruction.opname
            if name in _STORES or (name in _CELLS and instruction.argval in part.co_freevars):
                yield instruction.argval


def _has_groups_of(scheduler: Any, optimizer: torch.optim.Optimizer) -> bool:
    """Whether a scheduler writes parameter groups of an optimizer: that one's own, or those that it shares."""
    own = set(map(id, optimizer.param_groups))
    return any(id(group) in own for group in scheduler.optimizer.param_groups)
