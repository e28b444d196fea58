"""Python state that a step may not write while it is traced.

It would be written once, at the trace, and never again when the captured program runs. The watch notices it, puts
the user's objects back as they were and names the line.
"""

from __future__ import annotations

import dis
import linecache
import random
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

from neaptide.errors import CaptureError
from neaptide.frontends.places import root_of
from neaptide.frontends.scalars import is_scalar
from neaptide.frontends.step_state import StepState

_GONE = object()


class StateWatch:
    """Remembers the Python state that a step could write, and compares it afterwards.

    Args:
        state: what was found; its code is searched for the line that wrote.
    """

    def __init__(self, state: StepState) -> None:
        self._state = state
        watched = [p for p in state.watched if p.identity[0] not in state.torch_owned]
        self._places = [(place, place.get()) for place in watched]
        roots = {r.identity: r for slot in state.tensors for p in slot.places if (r := root_of(p)) is not p}
        self._tuples = [(place, place.get()) for place in roots.values()]
        self._contents = [(name, holder, _copy(holder)) for name, holder in state.containers]
        self._random = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy: Any = numpy.random.get_state() if numpy is not None else None

    def restore(self) -> list[str]:
        """Puts everything back; returns the names of what had been written, each once.

        The tensors are back in their places already.
        """
        written: dict[str, None] = {}
        for place, before in self._tuples:
            place.set(before)
        for place, before in self._places:
            try:
                after = place.get()
            except (LookupError, AttributeError, ValueError):
                after = _GONE
            if not _same(before, after) and root_of(place) is place:
                written[place.name] = None
                _set_back(place, before)
        for name, holder, before in self._contents:
            for key in () if id(holder) in self._state.torch_owned else _changed_keys(before, holder):
                written[f"{name}.{key}" if isinstance(key, str) else f"{name}[{key!r}]"] = None
            _put_back(holder, before)
        written.update(dict.fromkeys(self._random_numbers()))
        return list(written)

    def _random_numbers(self) -> Iterator[str]:
        if random.getstate() != self._random:
            random.setstate(self._random)
            yield "random (Python's random numbers)"
        if self._numpy is not None:
            numpy_random: Any = sys.modules["numpy"].random
            now = numpy_random.get_state()
            if now[2] != self._numpy[2] or (now[1] != self._numpy[1]).any():
                numpy_random.set_state(self._numpy)
                yield "random (numpy's random numbers)"

    def refuse(self, written: list[str]) -> CaptureError:
        """The error for state that the step wrote."""
        words = [w for w in re.findall(r"[A-Za-z_]\w*", written[0]) if w not in {"append", "remove", "self"}]
        lines = (find_line(word, self._state.codes) for word in reversed(words))
        return CaptureError(
            f"the step writes {', '.join(written[:3])}{' and more' if len(written) > 3 else ''}",
            where=next((line for line in lines if line), None),
            why="Python state that is written during the trace would not be written when the program runs",
            next_step="keep it in a tensor or buffer, or update it outside the step",
        )


def _set_back(place: Any, before: Any) -> None:
    # An entry of a list that was shortened has no place; the list itself is put back whole.
    if not isinstance(getattr(place, "holder", None), list):
        place.set(before)


def _copy(holder: Any) -> Any:
    return dict(holder) if isinstance(holder, dict) else list(holder)


def _changed_keys(before: Any, after: Any) -> list[Any]:
    if isinstance(before, list):
        if len(before) != len(after):
            return ["append"] if len(after) > len(before) else ["remove"]
        return [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if not _same(a, b)]
    return [
        k for k in {**before, **after} if k not in before or k not in after or not _same(before[k], after[k])
    ]


def _same(before: Any, after: Any) -> bool:
    if before is after:
        return True
    return is_scalar(before) and type(before) is type(after) and bool(before == after)


def _put_back(holder: Any, before: Any) -> None:
    if isinstance(holder, dict):
        for key in [k for k in holder if k not in before]:
            del holder[key]
        for key, content in before.items():
            if holder.get(key, _GONE) is not content:
                holder[key] = content
    else:
        holder[:] = before


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
