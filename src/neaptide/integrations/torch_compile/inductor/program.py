"""Plays a program that Inductor generated on fake tensors: its own Python decides what is allocated, reused and freed, and when.

Kernels that Inductor made do nothing here. Those of ATen run on fakes, and what they allocate beside their results is measured
by the cost model.
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from neaptide.frontends import _torch_private as private
from neaptide.integrations.torch_compile.inductor.scratch import Call

_DEVICES: Final = ("cpu", "cuda", "xpu", "mtia")
_MADE_BY: Final = frozenset({"async_compile", "AsyncCompile"})
_NO_CALLS: Final = ("assert_size_stride", "assert_alignment", "run_intermediate_hooks")


class Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of storages of fake tensors while they live.

    Attributes:
        live_bytes: of storages that were entered, or made by an operation, and live.
        moments: by operation that ran, the bytes live after it, and the operation with its operands.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live_bytes = 0
        self.moments: list[tuple[int, Call | None]] = []
        self._known: set[int] = set()

    def enter(self, tensor: torch.Tensor) -> None:
        """Count the storage of a tensor until it dies."""
        storage = tensor.untyped_storage()
        key = private.storage_key(storage)
        if key not in self._known:
            self._known.add(key)
            self.live_bytes += storage.nbytes()
            weakref.finalize(storage, self._leave, key, storage.nbytes())

    def bytes_of(self, tensors: Iterable[Any], among: Iterable[Any] | None = None) -> int:
        """Bytes of the storages of tensors, each once; of those alone that some others have as well, where these are given."""
        found = _storages(tensors)
        if among is not None:
            found = {key: found[key] for key in found.keys() & _storages(among).keys()}
        return sum(found.values())

    def _leave(self, key: int, nbytes: int) -> None:
        self._known.discard(key)
        self.live_bytes -= nbytes

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for one in pytree.tree_leaves(result):
            if isinstance(one, torch.Tensor):
                self.enter(one)
        self.moments.append((self.live_bytes, Call.of(func, args, kwargs or {})))
        return result


def _storages(tensors: Iterable[Any]) -> dict[int, int]:
    storages = [one.untyped_storage() for one in tensors if isinstance(one, torch.Tensor)]
    return {private.storage_key(storage): storage.nbytes() for storage in storages}


class _NoKernel:
    """A kernel of Inductor that does nothing."""

    def __call__(self, *_args: Any, **_kwargs: Any) -> None:
        """Run it."""

    run = __call__


def play(source: str, args: list[Any], meter: Meter, constants: Mapping[str, Any]) -> tuple[Any, ...]:
    """Run a generated program on fake tensors, inside of their mode.

    Args:
        args: its arguments; the list is emptied, so that they can die.
        constants: fake tensors that its module holds, by name.

    Returns:
        What it returns.
    """
    space = _namespace(source, constants)
    with meter:
        returned: tuple[Any, ...] = space["call"](args)
    return returned


def _namespace(source: str, constants: Mapping[str, Any]) -> dict[str, Any]:
    """The module of a program, without compiling its kernels."""
    kept: list[ast.stmt] = []
    space: dict[str, Any] = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign):
            used = {part.id for part in ast.walk(statement.value) if isinstance(part, ast.Name)}
            if used & _MADE_BY:
                space.update(dict.fromkeys(map(ast.unparse, statement.targets), _NoKernel()))
                continue
        if isinstance(statement, (ast.Import, ast.ImportFrom, ast.Assign, ast.ClassDef, ast.FunctionDef)):
            kept.append(statement)
    code = compile(ast.Module(kept, []), "<program of Inductor>", "exec")
    kernels = dict(space)
    exec(code, space)  # noqa: S102 - code that Inductor wrote
    space |= kernels | dict(constants) | dict.fromkeys(_NO_CALLS, _NoKernel())
    space |= {f"empty_strided_{device}": _empty(device) for device in _DEVICES}
    space["reinterpret_tensor"] = _reinterpreted
    return space


def _empty(device: str) -> Callable[..., torch.Tensor]:
    def empty(shape: Any, strides: Any, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    return empty


def _reinterpreted(tensor: torch.Tensor, shape: Any, strides: Any, offset: int = 0) -> torch.Tensor:
    return torch.as_strided(tensor, shape, strides, tensor.storage_offset() + offset)
