"""Answers a library that asks whether a tensor is fake as eager would, where its numbers are known.

Model libraries leave out checks of a tensor's numbers when they see a trace, and so take another branch: transformers
makes an attention mask of all ones that eager skips. Where the numbers follow from constants or from the batch, the
library is told that the tensor is none of a trace, and its check gets the answer of eager. Where only the data knows
them it takes its branch for traces, and the report says so.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from neaptide.frontends import _torch_private as private
from neaptide.frontends.recording.line_notes import calling_line
from neaptide.frontends.source.users_code import is_library_file, is_torch_file, names_in

_FAKE = "FakeTensor"
_Holder = tuple[dict[str, Any], str, types.FunctionType]


@contextlib.contextmanager
def answered_as_eager(is_known: Callable[[torch.Tensor], bool], branches: list[str]) -> Iterator[None]:
    """Stand in for the libraries' questions while the context is open.

    Args:
        is_known: whether the numbers of a tensor of the trace are known.
        branches: gets a sentence for each line that takes its branch for traces.
    """
    replaced = [
        (space, key, original, _stand_in(original, is_known, branches))
        for space, key, original in _questions()
    ]
    for space, key, _, stand_in in replaced:
        space[key] = stand_in
    try:
        yield
    finally:
        for space, key, original, _ in replaced:
            space[key] = original


def _stand_in(
    original: Callable[..., Any], is_known: Callable[[torch.Tensor], bool], branches: list[str]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def answer(*args: Any, **kwargs: Any) -> Any:
        asked = [item for item in (*args, *kwargs.values()) if isinstance(item, torch.Tensor)]
        fakes = list(filter(private.is_fake, asked))
        if not fakes:
            return original(*args, **kwargs)
        if all(map(is_known, fakes)):
            return False
        result = original(*args, **kwargs)
        line = calling_line(1)
        if result and line is not None:
            told = f"{line.location}: the library sees the trace and takes its branch for traced tensors; eager may take another"
            branches.append(told)
        return result

    return answer


def _questions() -> list[_Holder]:
    return _questions_among(tuple(map(id, sys.modules.values())))


@functools.lru_cache(maxsize=1)
def _questions_among(_loaded: tuple[int, ...]) -> list[_Holder]:
    """Predicates of libraries (`is_...`) whose code names the class of fake tensors, wherever a library holds them."""
    return [
        (entries, key, content)
        for module in list(sys.modules.values())
        if isinstance(module, types.ModuleType)
        and _is_asking_library(getattr(module, "__file__", None) or "")
        for entries in (vars(module),)
        for key, content in list(entries.items())
        if key.startswith("is_") and isinstance(content, types.FunctionType) and _asks(content.__code__)
    ]


def _is_asking_library(file: str) -> bool:
    return "site-packages" in file and is_library_file(file) and not is_torch_file(file)


@functools.cache
def _asks(code: types.CodeType) -> bool:
    return _FAKE in names_in(code)
