"""What a step may not do while it is traced: write Python state, print, draw Python random numbers.

Each would happen once, at the trace, and never again when the captured program runs. The watch notices it, puts
the user's objects back as they were and names the line.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import random
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from neaptide.errors import CaptureError
from neaptide.frontends.step_state import SCALARS, StepState, is_library_file


def users_line(frames: traceback.StackSummary | list[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """The innermost frame in the user's own files; else the innermost frame of all that is not ours."""
    ours = __file__.rsplit("frontends", 1)[0]
    foreign = [f for f in frames if not f.filename.startswith((ours + "frontends", ours + "api", ours + "cli"))]
    users = [f for f in foreign if not is_library_file(f.filename)]
    return users[-1] if users else (foreign[-1] if foreign else None)


def location(frame: traceback.FrameSummary | None) -> str | None:
    """`file:line: code` of a frame."""
    return None if frame is None else f"{frame.filename}:{frame.lineno}: {(frame.line or '').strip()}"


@contextlib.contextmanager
def no_host_output() -> Iterator[None]:
    """Turn `print` by the user's code into a `CaptureError` that names the line."""
    original = builtins.print

    def refuse(*args: Any, **kwargs: Any) -> None:
        frame = users_line(traceback.extract_stack()[:-1])
        if frame is not None and is_library_file(frame.filename):
            original(*args, **kwargs)
            return
        raise CaptureError(
            "the step prints while it runs",
            where=location(frame),
            why="host output would happen once, at capture, and never again",
            next_step="return the value from the step and print it outside",
        )

    builtins.print = refuse
    try:
        yield
    finally:
        builtins.print = original


class StateWatch:
    """Remembers the Python state that a step could write, and compares it afterwards.

    Args:
        state: what was found.
        step: the step itself; its code is searched for the line that wrote.
    """

    def __init__(self, state: StepState, step: Callable[..., Any]) -> None:
        self._state = state
        self._step = step
        self._scalars = [(place, place.get()) for place in state.scalars]
        self._contents = [(name, holder, _copy(holder)) for name, holder in state.containers]
        self._random = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy = numpy.random.get_state() if numpy is not None else None  # type: ignore[attr-defined]

    def restore(self) -> list[str]:
        """Puts everything back; returns the names of what had been written, each once."""
        written: dict[str, None] = {}
        for place, before in self._scalars:
            after = place.get()
            if after is not before and (type(after) is not type(before) or after != before):
                written[place.name] = None
                place.set(before)
        for name, holder, before in self._contents:
            for key in () if id(holder) in self._state.torch_owned else _changed_keys(before, holder):
                written[f"{name}.{key}" if isinstance(key, str) else f"{name}[{key!r}]"] = None
            _put_back(holder, before)
        if random.getstate() != self._random:
            written["random (Python's random numbers)"] = None
            random.setstate(self._random)
        if self._numpy is not None:
            numpy_random = sys.modules["numpy"].random  # type: ignore[attr-defined]
            now = numpy_random.get_state()
            if now[2] != self._numpy[2] or (now[1] != self._numpy[1]).any():
                written["numpy.random"] = None
                numpy_random.set_state(self._numpy)
        return list(written)

    def refuse(self, written: list[str]) -> CaptureError:
        """The error for state that the step wrote."""
        name = written[0]
        word = name.rsplit(".", 1)[-1].split("[", 1)[0]
        return CaptureError(
            f"the step writes {', '.join(written[:3])}{' and more' if len(written) > 3 else ''}",
            where=_find_line(word, self._step, list(self._state.modules.values())),
            why="Python state that is written during the trace would not be written when the program runs",
            next_step="keep it in a tensor or buffer, or update it outside the step",
        )


def _copy(holder: Any) -> Any:
    return dict(holder) if isinstance(holder, dict) else list(holder)


def _changed_keys(before: Any, after: Any) -> list[Any]:
    if isinstance(before, list):
        if len(before) != len(after):
            return ["append"] if len(after) > len(before) else ["remove"]
        return [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if not _same(a, b)]
    return [k for k in {**before, **after} if k not in before or k not in after or not _same(before[k], after[k])]


def _same(before: Any, after: Any) -> bool:
    if before is after:
        return True
    if isinstance(before, SCALARS) and type(before) is type(after):
        return bool(before == after)
    return False


def _put_back(holder: Any, before: Any) -> None:
    if isinstance(holder, dict):
        for key in [k for k in holder if k not in before]:
            del holder[key]
        for key, content in before.items():
            if holder.get(key) is not content:
                holder[key] = content
    else:
        holder[:] = before


def _find_line(word: str, step: Callable[..., Any], modules: list[torch.nn.Module]) -> str | None:
    """First line of the user's code that stores `word`, or failing that, that names it."""
    codes = list(_codes_of(step, set()))
    for root in modules:
        for kind in {type(m) for m in root.modules()}:
            for member in vars(kind).values():
                if isinstance(member, types.FunctionType) and not is_library_file(member.__code__.co_filename):
                    codes.append(member.__code__)
    named = None
    for code in codes:
        line = code.co_firstlineno
        for instruction in dis.get_instructions(code):
            line = instruction.starts_line if isinstance(instruction.starts_line, int) and instruction.starts_line > 1 else line
            if instruction.argval != word:
                continue
            if instruction.opname.startswith("STORE"):
                return f"{code.co_filename}:{line}"
            named = named or f"{code.co_filename}:{line}"
    return named


def _codes_of(item: Any, seen: set[int]) -> Iterator[types.CodeType]:
    if id(item) in seen:
        return
    seen.add(id(item))
    if isinstance(item, types.MethodType):
        yield from _codes_of(item.__func__, seen)
    elif isinstance(item, types.FunctionType):
        yield item.__code__
        for cell in item.__closure__ or ():
            with contextlib.suppress(ValueError):  # a variable not assigned yet
                yield from _codes_of(cell.cell_contents, seen)
        for name in item.__code__.co_names:
            found = item.__globals__.get(name)
            if isinstance(found, types.FunctionType) and not is_library_file(found.__code__.co_filename):
                yield from _codes_of(found, seen)
    elif hasattr(item, "__call__") and isinstance(getattr(type(item), "__call__", None), types.FunctionType):  # noqa: B004
        yield from _codes_of(type(item).__call__, seen)
