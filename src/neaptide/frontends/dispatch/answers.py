"""What a trace answers where it is asked of a tensor without numbers: whether it is true, and whether it is one of a trace.

* A tensor that depends on no input of the step is computed once, here: a mask compared with the causal one, say.
* So is one that depends on whole numbers of the batch alone, where a library asks (whether all of an attention mask is
  ones). The answer is then a decision, worked out anew at each call, and another one picks another program.
* A check that only raises (`assert good`, `if bad.any(): raise`, the argument checks of `torch.distributions`) has one
  answer in every step that goes on. The trace takes it, and the check becomes an operation of the program, which
  fails at run time where the answer is another one.

Model libraries leave out checks of a tensor's numbers when they see a trace, and so take another branch: transformers
makes an attention mask of all ones that eager skips. Where the numbers follow from constants or from the batch, the
library is told that the tensor is none of a trace, and its check gets the answer of eager. Where only the data knows
them it takes its branch for traces, and the report says so.
"""

from __future__ import annotations

import dis
import functools
import linecache
import sys
import types
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

from neaptide.frontends import _torch_private as private
from neaptide.frontends.dispatch.host_numbers import HostNumbers
from neaptide.frontends.objects.places import Replacement
from neaptide.frontends.recording.line_notes import calling_line
from neaptide.frontends.recording.traced_sizes import traced_size
from neaptide.frontends.source.users_code import is_library_file, is_torch_file, names_in

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


# -- truths


def known_truths(host: HostNumbers) -> Iterator[Replacement]:
    """Answer what can be known from what was recorded; everything else is asked of the trace, which refuses it."""

    def make(original: Callable[[torch.Tensor], bool]) -> Callable[[torch.Tensor], bool]:
        def truth(tensor: torch.Tensor) -> bool:
            if not private.is_fake(tensor) or traced_size(tensor.numel()) != 1:
                return original(tensor)
            known = host.truth(tensor, of_batch=False)
            if known is not None:
                return known
            frame = sys._getframe(1)  # noqa: SLF001 - a stack summary would read files
            answer = answer_that_goes_on(frame.f_code, frame.f_lasti)
            if answer is not None:
                _check(tensor, answer, frame)
                return answer
            if is_library_file(frame.f_code.co_filename):
                known = host.truth(tensor, of_batch=True)
            return original(tensor) if known is None else known

        return truth

    def make_question(original: Callable[..., bool]) -> Callable[..., bool]:
        def all_true(valid: torch.Tensor, message: str) -> bool:
            if not private.is_fake(valid):
                return original(valid, message)
            holds = valid.all()
            known = host.truth(holds, of_batch=False)
            if known is None:
                _check(holds, answer=True, frame=sys._getframe(1))  # noqa: SLF001 - as above
            return known is not False

        return all_true

    yield torch.Tensor, "__bool__", make
    for module, name in private.check_questions:
        yield module, name, make_question


def _check(tensor: torch.Tensor, answer: bool, frame: FrameType) -> None:
    # The text is part of the program: without file and line, which an edit elsewhere would change.
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    holds = tensor.detach() if answer else tensor.detach().logical_not()
    torch._assert_async(holds.reshape(()) != 0, f"a check of the step failed: {line}")  # noqa: SLF001


# -- libraries that ask whether a tensor is fake

_FAKE = "FakeTensor"


def answered_as_eager(is_known: Callable[[torch.Tensor], bool], branches: list[str]) -> Iterator[Replacement]:
    """Stand-ins for the libraries' questions; `branches` gets a sentence for each line that takes its branch for traces."""
    make = functools.partial(_stand_in, is_known, branches)
    for module, name in _questions(tuple(map(id, sys.modules.values()))):
        yield module, name, make


def _stand_in(
    is_known: Callable[[torch.Tensor], bool], branches: list[str], original: Callable[..., Any]
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


@functools.lru_cache(maxsize=1)
def _questions(_loaded: tuple[int, ...]) -> list[tuple[types.ModuleType, str]]:
    """Predicates of libraries (`is_...`) whose code names the class of fake tensors, wherever a library holds them."""
    return [
        (module, key)
        for module in list(sys.modules.values())
        if isinstance(module, types.ModuleType)
        and "site-packages" in (file := getattr(module, "__file__", None) or "")
        and is_library_file(file)
        and not is_torch_file(file)
        for key, content in list(vars(module).items())
        if key.startswith("is_") and isinstance(content, types.FunctionType) and _asks(content.__code__)
    ]


@functools.cache
def _asks(code: types.CodeType) -> bool:
    return _FAKE in names_in(code)
