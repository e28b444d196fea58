"""Says in the user's words why a trace failed, and at which of the user's lines."""

from __future__ import annotations

import contextlib
import inspect
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any, Final

from neaptide.errors import CaptureError, UsageError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.source.call_site import is_users_frame
from neaptide.frontends.source.users_code import is_library_file, is_ours

_PADDED: Final = "keep the batch padded, and mask the padding in the loss (torch.where)"

# A row decides nothing but the words of a refusal.
# Part of the path of the file that asks, part of the line that asks or of the name of its function (empty for any), and
# what helps. The first row that fits is taken, from the innermost line outwards.
KNOWN_FIXES: Final = (
    ("torch/distributions/", "", "pass validate_args=False to the distribution"),
    (
        "torch/nn/modules/transformer.py",
        "_detect_is_causal_mask",
        (
            "say whether the mask is causal: tgt_is_causal=True or False (is_causal= for an encoder, src_is_causal= for the "
            "source), or make the mask inside the step"
        ),
    ),
    ("torch/nn/utils/rnn.py", "", _PADDED),
    ("", "pack_padded_sequence", _PADDED),
    ("torch/nn/modules/rnn.py", "", "give it a padded batch, and mask the padding in the loss (torch.where)"),
    (
        "torch/optim/swa_utils.py",
        "",
        "call update_parameters in a statement of the step after its last operation",
    ),
    ("torchmetrics/", "", "update the metric after the last tensor operation, or with validate_args=False"),
    (
        "",
        "ctc_loss",
        (
            "pass the lengths with the batch, or as tuples of Python numbers (lengths.tolist() outside the step): the memory "
            "of this loss follows from them"
        ),
    ),
    ("", "one_hot(", "say how many classes there are: one_hot(x, num_classes=...)"),
    ("", "repeat_interleave(", "say how long the result is: repeat_interleave(..., output_size=...)"),
    ("", "bincount(", "count with one_hot(x, num_classes=...).sum(0), or scatter_add into zeros"),
    (
        "",
        ".isfinite(",
        "raise where it is not (if not torch.isfinite(loss): raise ...): checks run with the program",
    ),
    ("", ".isnan(", "raise where it is (if torch.isnan(loss): raise ...): checks run with the program"),
    ("", ".numpy(", "stay in torch, or take it after the last tensor operation, as a statement of the step"),
)

# The machinery of a trace, in torch's own folder.
_TRACING: Final = (
    *("_subclasses/", "fx/", "_dynamo/", "_library/", "_prims_common/", "_refs/", "_decomp/", "_inductor/"),
    *("_functorch/", "__init__.py", "_ops.py", "overrides.py", "_compile.py", "_meta_registrations.py"),
    *("_tensor.py", "utils/_"),
)


def known_fix(frames: Sequence[traceback.FrameSummary]) -> str | None:
    """What helps, by the first row that fits the frames of a failed trace; None where nothing is known."""
    for frame in reversed(frames):
        path = frame.filename.replace(os.sep, "/")
        for file, word, next_step in KNOWN_FIXES:
            if file in path and (word in frame.name or word in (frame.line or "")):
                return next_step
    return None


def known_fix_of_line(line: str) -> str | None:
    """The same for one line of code, whatever its file."""
    return next((fix for file, word, fix in KNOWN_FIXES if not file and word in line), None)


def library_line(frames: Sequence[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """The innermost line of a library that the user calls; the machinery of the trace is no such library."""
    for frame in reversed(frames):
        if not is_library_file(frame.filename):
            return None
        if not frame.filename.replace(os.sep, "/").partition("/torch/")[2].startswith(_TRACING):
            return frame
    return None


# -- what a failed trace is told as


_ROOT = __file__.rsplit("frontends", 1)[0]

_OPTIMIZERS = "torch/optim/"


def users_line(frames: Sequence[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """The innermost frame in the user's own files; else the innermost frame of all that is not ours."""
    foreign = [f for f in frames if not is_ours(f.filename)]
    users = [f for f in foreign if not is_library_file(f.filename) or f.filename.startswith(_ROOT)]
    return users[-1] if users else (foreign[-1] if foreign else None)


def location(frame: traceback.FrameSummary | None) -> str | None:
    """`file:line: code` of a frame."""
    return None if frame is None else f"{frame.filename}:{frame.lineno}: {(frame.line or '').strip()}"


def explained(error: Exception, hidden: Sequence[str]) -> CaptureError:
    """The error that the user gets for one that tracing raised, its cause where nothing is known of it but its message.

    `hidden` are names of tensors that were seen where they could not be replaced.
    """
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not is_ours(f.filename)]
    where = location(users_line(frames))
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    fix = known_fix(frames)
    if isinstance(error, private.data_dependent_errors()):
        call_site = library_line(frames)
        why = "it is known only when the step runs, and the captured program is the same at every step"
        why += f"; asked for at {location(call_site)}" if call_site is not None else ""
        what = "the step asks for a number that depends on the data"
        if fix is None and any(_OPTIMIZERS in f.filename.replace("\\", "/") for f in frames):
            what = "the optimizer decides by a number that only the data knows"
            fix = "use one that updates the same way at every step (SGD, Adam, AdamW, RMSprop, NAdam do)"
        fix = fix or "keep the decision in tensors (torch.where), or take it outside the step"
        return CaptureError(what, where=where, why=why, next_step=fix)
    words = str(error)
    mixes_devices = "same device" in words or "different devices" in words  # as torch's versions put it
    if fix is None and "meta" in words and mixes_devices:
        fix = _REVERSE_TWICE
    if fix is not None:
        return CaptureError("the step failed while it was traced", where=where, why=first, next_step=fix)
    if private.is_about_fakes(error):
        kept = f"; not replaceable where they are kept: {', '.join(hidden[:3])}" if hidden else ""
        return CaptureError(
            "the step uses a tensor that was not found",
            where=where,
            why=first + kept,
            next_step="pass it with the batch, keep it in an attribute or variable, or name it in state=",
        )
    told = CaptureError(
        "the step failed while it was traced",
        where=where,
        why=f"{type(error).__name__}: {first}",
        next_step="run the step eagerly once; if that works, report this line",
    )
    told.__cause__ = error
    return told


# Where an operation met a tensor on meta beside others: torch makes such where it adds a tangent of zeros.
_REVERSE_TWICE = (
    "where forward derivatives are differentiated again (hessian, jacfwd, jvp), take them in reverse: "
    "jacrev(jacrev(f)) for hessian(f); else move the tensor that is on meta to the device of the others"
)


def unread_attribute(name: str, content: object, error: BaseException | None) -> CaptureError:
    """The error for an attribute of the batch that the step reads, and whose value cannot be compared at each call.

    `error` was raised where it was read, unless the step went on.
    """
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    return CaptureError(
        f"the step reads {name}, a {type(content).__name__}",
        where=location(users_line(frames)),
        why="it is neither made of tensors nor a plain value, so another one would not be noticed at a later call",
        next_step="pass what the step needs of it as tensors or plain values",
    )


def unknown_shape(where: str | None, operation: str) -> CaptureError:
    """The error for a tensor whose shape only the data knows."""
    return CaptureError(
        "the step makes a tensor whose shape depends on the data",
        where=where,
        why=f"{operation} keeps as many elements as the data says",
        next_step=known_fix_of_line(where or "")
        or "select with a mask (torch.where) instead, or take it outside the step",
    )


def refuse_factory(returned: Iterable[Any], step: Callable[..., Any]) -> None:
    """Refuse a factory: a function that returned, among parts that are no tensors, a step instead of doing one."""
    made = next((part for part in returned if callable(part)), None)
    code = getattr(inspect.unwrap(step), "__code__", None)
    if made is None or (
        code is not None and is_ours(code.co_filename)
    ):  # the head of a step returns its variables
        return
    raise UsageError(
        f"a factory was given as the step: it returned a {type(made).__name__}, which can be called",
        where=None if code is None else f"{code.co_filename}:{code.co_firstlineno}",
        why="a factory returns the tuple (step, batch); a step does forward, loss, backward and update",
        next_step="step, batch = factory(), and give step and batch",
    )


def line_of_change(has_changed: Callable[[], bool], run: Callable[[], Any]) -> str | None:
    """`file:line: code` of the innermost line of the user's after which something has changed; None if none did.

    Only for a step that is refused anyway, and is run once more: each line costs a look.
    """
    search = _Search(has_changed)
    before = sys.gettrace()
    sys.settrace(search.enter)
    try:
        with contextlib.suppress(Exception):  # the error of the first run is the one that is told
            run()
    finally:
        sys.settrace(before)
    search.look()
    return search.found


class _Search:
    def __init__(self, has_changed: Callable[[], bool]) -> None:
        self._has_changed = has_changed
        self._last: tuple[str, int] | None = None
        self.found: str | None = None

    def enter(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        """Called for each new frame; library frames are left alone."""
        return self._line if self.found is None and is_users_frame(frame) else None

    def look(self) -> None:
        """Remember the last line if something has changed by now."""
        if self.found is None and self._last is not None and self._has_changed():
            file, line = self._last
            self.found = f"{file}:{line}: {linecache.getline(file, line).strip()}"

    def _line(self, frame: FrameType, event: str, _arg: Any) -> Any:
        self.look()
        if event == "return":  # the rest of the caller's line may still change it
            self._last = _line_of_user(frame.f_back) or self._last
        else:
            self._last = (frame.f_code.co_filename, frame.f_lineno)
        return self._line


def _line_of_user(frame: FrameType | None) -> tuple[str, int] | None:
    while frame is not None:
        if is_users_frame(frame):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None
