"""What a tensor's truth is while a step is traced, where that can be known without its numbers.

* A tensor that depends on no input of the step is computed once, here: a mask compared with the causal one, say.
* So is one that depends on whole numbers of the batch alone, where a library asks (whether all of an attention mask is
  ones). The answer is then a decision, worked out anew at each call, and another one picks another program.
* A check that only raises (`assert good`, `if bad.any(): raise`, the argument checks of `torch.distributions`) has one
  answer in every step that goes on. The trace takes it, and the check becomes an operation of the program, which
  fails at run time where the answer is another one.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
from collections.abc import Iterator
from types import FrameType

import torch

from neaptide.frontends import _torch_private as private
from neaptide.frontends.dispatch.host_numbers import HostNumbers
from neaptide.frontends.recording.traced_sizes import traced_size
from neaptide.frontends.source.raising_branches import answer_that_goes_on
from neaptide.frontends.source.users_code import is_library_file


@contextlib.contextmanager
def known_truths(host: HostNumbers) -> Iterator[None]:
    """Answer what can be known from what was recorded; everything else is asked of the trace, which refuses it."""
    own = "__bool__" in vars(torch.Tensor)
    original = torch.Tensor.__bool__

    def truth(tensor: torch.Tensor) -> bool:
        if private.is_fake(tensor) and traced_size(tensor.numel()) == 1:
            known = host.truth(tensor, of_batch=False)
            if known is not None:
                return known
            frame = sys._getframe(1)  # noqa: SLF001 - a stack summary would read files
            answer = answer_that_goes_on(frame.f_code, frame.f_lasti)
            if answer is not None:
                _check(tensor, answer, frame)
                return answer
            if is_library_file(frame.f_code.co_filename):
                decided = host.truth(tensor, of_batch=True)
                if decided is not None:
                    return decided
        return original(tensor)

    torch.Tensor.__bool__ = truth  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        if own:
            torch.Tensor.__bool__ = original  # type: ignore[method-assign]
        else:
            del torch.Tensor.__bool__


def _check(tensor: torch.Tensor, answer: bool, frame: FrameType) -> None:
    # The text is part of the program: without file and line, which an edit elsewhere would change.
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    holds = tensor.detach() if answer else tensor.detach().logical_not()
    torch._assert_async(holds.reshape(()) != 0, f"a check of the step failed: {line}")  # noqa: SLF001
