"""Everything that can be reached from a step, by path, and where two of them differ.

It checks the search for state of `neaptide.frontends`, and so shares no code with it: it follows closures, defaults,
named globals, attributes and containers of every kind, in library objects too, and notes tensors, arrays, numbers,
strings and the states of generators. What lies on the way twice is noted once and referred to after that, so that two
names of one object stay two names of one object.
"""

from __future__ import annotations

import dis
import functools
import logging
import random
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import torch

_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
# Counted up for the whole process, or marks of what was done or looked at once: that an optimizer stepped, and that its
# parameters are fit for its fused kernel. The words that tell of a function: of a scripted one torch adds them later.
_NO_STATE: Final = frozenset(
    {"next_id", "hooks_dict_ref", "__weakref__", "_opt_called", "_need_device_dtype_check_for_fused"}
    | {"__doc__", "__name__", "__qualname__"}
)
# An autocast context remembers what was on when it was last entered.
_WITHOUT_STATE: Final = (
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    logging.Logger,
    torch.autocast,
    torch._ops.OpOverload,
    torch.library.CustomOpDef,
    torch.utils.hooks.RemovableHandle,
)
_GLOBAL_LOOKUPS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"})


class Snapshot:
    """Leaves by path, cloned.

    Args:
        roots: by name: the step, its batch, its results. Whether a result still hangs on a graph is not noted: those of
            a planned step never do.
    """

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self.leaves: dict[str, Any] = {}
        self._seen: dict[int, str] = {}
        self._kept: list[Any] = []  # an id is that of one object only while the object lives
        waiting = deque((name, root) for name, root in roots.items())
        while waiting:
            path, found = waiting.popleft()
            waiting.extend(self._visit(path, found))
        self.leaves["random"] = random.getstate()
        self.leaves["numpy.random"] = repr(np.random.get_state())  # noqa: NPY002 - what users' code draws from
        self.leaves["torch random state"] = torch.get_rng_state()

    def differences(self, other: Snapshot) -> list[str]:
        """Paths at which the two differ, in words."""
        return [
            f"{path}: {_said(self.leaves, path)} and {_said(other.leaves, path)}"
            for path in {**self.leaves, **other.leaves}
            if not _same(self.leaves.get(path, _Missing), other.leaves.get(path, _Missing))
        ]

    def _visit(self, path: str, found: Any) -> Iterable[tuple[str, Any]]:
        if isinstance(found, _PLAIN):
            self.leaves[path] = found
            return ()
        if isinstance(found, _WITHOUT_STATE):
            return ()
        if id(found) in self._seen:
            self.leaves[path] = f"the same as {self._seen[id(found)]}"
            return ()
        if type(found).__module__.startswith("torch._dynamo"):
            return ()  # what a compiler remembers
        self._seen[id(found)] = path
        self._kept.append(found)
        if isinstance(found, torch.Tensor):
            return self._tensor(path, found)
        if isinstance(found, np.ndarray):
            self.leaves[path] = torch.from_numpy(found.copy()) if found.dtype != object else repr(found)
            return ()
        state = _generator_state(found)
        if state is not None:
            self.leaves[path] = state
            return ()
        return self._parts(path, found)

    def _tensor(self, path: str, tensor: torch.Tensor) -> Iterable[tuple[str, Any]]:
        if tensor.is_meta:
            self.leaves[path] = f"{tensor.dtype} {tuple(tensor.shape)} without bytes"
            return ()
        dense = tensor.to_dense() if tensor.layout is not torch.strided else tensor
        self.leaves[path] = dense.detach().clone()
        if path.startswith("results"):
            return ()
        self.leaves[f"{path} to autograd"] = tensor.requires_grad, tensor.is_leaf
        parts = [(f"{path}.grad", tensor.grad)] if tensor.is_leaf else []
        return [*parts, *_named(path, vars(tensor))]

    def _parts(self, path: str, found: Any) -> Iterable[tuple[str, Any]]:
        if isinstance(found, Mapping):
            self.leaves[path] = f"{len(found)} entries"
            if found and all(isinstance(key, int) and callable(part) for key, part in found.items()):
                return self._visit_hooks(path, found)
            return [(f"{path}[{self._key(key)}]", part) for key, part in found.items()]
        if isinstance(found, (list, tuple, deque)):
            self.leaves[path] = f"{len(found)} elements"
            return [(f"{path}[{number}]", part) for number, part in enumerate(found)]
        if isinstance(found, (set, frozenset)):
            self.leaves[path] = sorted(repr(part) for part in found if isinstance(part, _PLAIN))
            return ()
        if isinstance(found, types.FunctionType):
            return [*_function_parts(path, found)]
        if isinstance(found, types.MethodType):
            return [(f"{path}.__self__", found.__self__), (f"{path}.__func__", found.__func__)]
        if isinstance(found, functools.partial):
            return [(f"{path}.{name}", getattr(found, name)) for name in ("func", "args", "keywords")]
        slots = {
            name: getattr(found, name)
            for kind in type(found).__mro__
            for name in kind.__dict__.get("__slots__", ())
            if isinstance(name, str) and hasattr(found, name)
        }
        return [*_named(path, slots), *_named(path, getattr(found, "__dict__", {}))]

    @staticmethod
    def _visit_hooks(path: str, hooks: Mapping[int, Any]) -> Iterable[tuple[str, Any]]:
        """Hooks are kept by numbers that are counted for the whole process."""
        return [(f"{path}[hook {number}]", part) for number, part in enumerate(hooks.values())]

    def _key(self, key: Any) -> str:
        if isinstance(key, _PLAIN):
            return repr(key)
        return self._seen.get(id(key), type(key).__name__)


def _named(path: str, parts: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [
        (f"{path}.{name}", part)
        for name, part in parts.items()
        if name not in _NO_STATE and "dynamo" not in name
    ]


def _function_parts(path: str, function: types.FunctionType) -> Iterable[tuple[str, Any]]:
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        try:
            yield f"{path}<{name}>", cell.cell_contents
        except ValueError:
            continue  # not yet filled
    yield f"{path}.__defaults__", function.__defaults__
    yield f"{path}.__kwdefaults__", function.__kwdefaults__
    if _is_ours(function):
        looked_up = {i.argval for i in dis.get_instructions(function.__code__) if i.opname in _GLOBAL_LOOKUPS}
        for name in sorted(looked_up & function.__globals__.keys()):
            yield f"{path}::{name}", function.__globals__[name]
    yield from _named(path, vars(function))


def _is_ours(function: Callable[..., Any]) -> bool:
    """Whether it is a function of the tests: the globals of libraries are no state of a step."""
    return (function.__module__ or "").partition(".")[0] in {"programs", "frontends", "tests"}


def _generator_state(found: Any) -> Any:
    if isinstance(found, torch.Generator):
        return found.get_state()
    if isinstance(found, random.Random):
        return found.getstate()
    if isinstance(found, np.random.Generator):
        return repr(found.bit_generator.state)
    if isinstance(found, np.random.RandomState):
        return repr(found.get_state())
    return None


class _Missing:
    """Stands for a path that one of two snapshots lacks."""


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        return torch.equal(_bytes_of(one), _bytes_of(other))
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return False
    return type(one) is type(other) and (one == other or (one != one and other != other))


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)


def _said(leaves: Mapping[str, Any], path: str) -> str:
    if path not in leaves:
        return "nothing"
    leaf = leaves[path]
    if isinstance(leaf, torch.Tensor):
        return f"{leaf.dtype} {tuple(leaf.shape)} with sum {float(leaf.double().sum() if not leaf.is_complex() else leaf.abs().sum()):.9g}"
    return repr(leaf)[:60]
