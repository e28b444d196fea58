"""Whether a branch of Python code does nothing but raise, read from its bytecode.

`if bad.any(): raise ValueError(...)` and `assert good` ask for a number, and whatever goes on afterwards has got the
same answer. So the answer is known while a step is traced, and is checked when it runs.
"""

from __future__ import annotations

import dis
import functools
import types

MAX_STEPS = 400  # instructions followed in one branch; messages are short

_LEAVES = frozenset({"RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE", "RETURN_GENERATOR", "SEND"})
_RAISES = frozenset({"RAISE_VARARGS", "RERAISE"})
_TESTS = ("POP_JUMP_IF_", "POP_JUMP_FORWARD_IF_", "POP_JUMP_BACKWARD_IF_")


@functools.cache
def answer_that_goes_on(code: types.CodeType, offset: int) -> bool | None:
    """The truth of a tested thing that does not raise; None where neither or both outcomes raise for certain.

    Asked for by the instruction at an offset in bytes.
    """
    listed = list(dis.get_instructions(code))
    index = {instruction.offset: i for i, instruction in enumerate(listed)}
    at = index.get(offset)
    if at is None:
        return None
    negated = False
    while listed[at].opname in {"TO_BOOL", "UNARY_NOT", "CACHE"}:
        negated ^= listed[at].opname == "UNARY_NOT"
        at += 1
    test = listed[at]
    if not test.opname.startswith(_TESTS) or test.opname.rsplit("_", 1)[-1] not in {"TRUE", "FALSE"}:
        return None
    jumps_if = test.opname.endswith("TRUE") != negated
    jumped = _only_raises(listed, index, index[test.argval], at)
    stayed = _only_raises(listed, index, at + 1, at)
    if jumped == stayed:
        return None
    return not jumps_if if jumped else jumps_if


def _only_raises(listed: list[dis.Instruction], index: dict[int, int], start: int, test: int) -> bool:
    """Whether every way on from an instruction ends in a raise."""
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        name = listed[at].opname if at < len(listed) else "RETURN_VALUE"
        if name in _LEAVES or at == test or len(seen) > MAX_STEPS:
            return False
        if name in _RAISES:
            continue
        is_jump = listed[at].opcode in dis.hasjrel or listed[at].opcode in dis.hasjabs
        if is_jump:
            waiting.append(index[listed[at].argval])
        if not is_jump or not name.startswith("JUMP_") or "_IF_" in name:
            waiting.append(at + 1)
    return True
