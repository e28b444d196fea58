"""What counts as the user's own code, and what it names."""

from __future__ import annotations

import dis
import functools
import inspect
import linecache
import os
import site
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch


@functools.cache
def _library_roots() -> tuple[str, ...]:
    roots = {sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    roots |= set(site.getsitepackages())
    roots.add(os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__))))  # noqa: PTH120, PTH100
    return tuple(os.path.join(root, "") for root in roots if root)  # noqa: PTH118


_ROOT = __file__.rsplit("frontends", 1)[0]
_ZOO = os.path.join(_ROOT + "zoo", "")  # noqa: PTH118
_HEAP_TYPE = 1 << 9  # of `type.__flags__`: made by a class statement
_TORCH = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")  # noqa: PTH118, PTH120, PTH100
_GLOBAL_LOOKUPS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"})


@functools.cache
def is_library_file(path: str) -> bool:
    """Whether a source file belongs to the interpreter, to an installed library or to neaptide itself."""
    return path.startswith((*_library_roots(), "<frozen")) or is_ours(path)


def is_ours(file: str) -> bool:
    """Whether a source file belongs to neaptide; the zoo counts as a user."""
    return file.startswith(_ROOT) and not file.startswith(_ZOO)


def is_torch_file(path: str) -> bool:
    """Whether a source file is torch's own."""
    return path.startswith(_TORCH)


def home_of(step: Callable[..., Any]) -> str | None:
    """The folder of a step that is itself part of an installed library, and so counts as the user's; else None.

    A step outside all libraries needs none: what is next to it is the user's anyway, and its folder may well hold
    the environment with all the libraries.
    """
    inner: Any = step
    while True:
        if hasattr(inner, "__wrapped__"):
            inner = inner.__wrapped__
        elif isinstance(inner, functools.partial):
            inner = inner.func
        elif isinstance(inner, types.MethodType):
            inner = inner.__func__
        else:
            break
    call = getattr(type(inner), "__call__", None)  # noqa: B004 - the function itself is wanted
    code = getattr(inner, "__code__", None) or getattr(call, "__code__", None)
    if code is None or not is_library_file(code.co_filename):
        return None
    return os.path.join(os.path.dirname(code.co_filename), "")  # noqa: PTH118, PTH120


def class_file(kind: type) -> str:
    """Source file of a class; empty when it has none."""
    module = sys.modules.get(kind.__module__)
    return getattr(module, "__file__", None) or ("" if kind.__module__ == "__main__" else "<frozen builtin>")


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


def names_in(code: types.CodeType) -> set[str]:
    """Globals, attributes and imported names that code mentions, and the strings in it (keys of `getattr`)."""
    names: set[str] = set()
    for part in codes_in(code):
        names.update(part.co_names)
        names.update(c for c in part.co_consts if isinstance(c, str))
    return names


def globals_in(code: types.CodeType) -> set[str]:
    """Names that code looks up among the globals; an attribute that happens to be called alike is none."""
    return {
        instruction.argval
        for part in codes_in(code)
        for instruction in dis.get_instructions(part)
        if instruction.opname in _GLOBAL_LOOKUPS
    }


def functions_of(member: Any) -> Iterator[types.FunctionType]:
    """The Python functions behind an entry of a class: plain, static, class method, property, cached property."""
    if isinstance(member, types.FunctionType):
        yield member
    elif isinstance(member, (staticmethod, classmethod)):
        yield from functions_of(member.__func__)
    elif isinstance(member, property):
        for part in (member.fget, member.fset):
            yield from functions_of(part)
    elif isinstance(member, functools.cached_property):
        yield from functions_of(member.func)


def hides_code(kind: type, key: str) -> bool:
    """Whether an attribute of that name on an object takes the place of a method or a class of its type."""
    return callable(inspect.getattr_static(kind, key, None))


def is_patchable(kind: type) -> bool:
    """Whether the methods of a class can be replaced: of one that is written in C they cannot."""
    return bool(kind.__flags__ & _HEAP_TYPE)


def find_line(word: str, codes: list[types.CodeType]) -> str | None:
    """First line that stores `word` or an entry of it, or failing that, that names it: `file:line: code`."""
    named = None
    for code in codes:
        for part, line, instruction in _instructions(code):
            if instruction.argval != word:
                continue
            if instruction.opname.startswith(("STORE", "DELETE")):
                return _line_of(part, line)
            named = named or _line_of(part, line)
    return named


def _instructions(code: types.CodeType) -> Iterator[tuple[types.CodeType, int, dis.Instruction]]:
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        # The type of `starts_line` changed from a number to a flag in Python 3.13; positions are the same in all.
        if instruction.positions is not None and instruction.positions.lineno is not None:
            line = instruction.positions.lineno
        yield code, line, instruction
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _instructions(constant)


def _line_of(code: types.CodeType, line: int) -> str:
    return f"{code.co_filename}:{line}: {linecache.getline(code.co_filename, line).strip()}"
