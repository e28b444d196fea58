"""What learning-rate schedulers write into parameter groups: rates always, and momenta where they cycle."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterable, Iterator
from typing import Any

from torch.optim.lr_scheduler import LRScheduler

from neaptide.frontends.source.users_code import codes_in, functions_of
from neaptide.frontends.state.step_state import StepState


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
