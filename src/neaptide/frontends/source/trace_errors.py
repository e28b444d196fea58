"""Says in the user's words why a trace failed, and at which of the user's lines."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from neaptide.errors import CaptureError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.source.known_fixes import known_fix, known_fix_of_line, library_line
from neaptide.frontends.source.users_code import is_library_file, is_ours

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
    """The error that the user gets for one that tracing raised.

    Its cause is that error where nothing is known of it but its message.

    Args:
        error: as it was raised.
        hidden: names of tensors that were seen where they could not be replaced.
    """
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not is_ours(f.filename)]
    where = location(users_line(frames))
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    fix = known_fix(frames)
    if isinstance(error, private.data_dependent_errors()):
        asker = library_line(frames)
        asked = f"; asked for at {location(asker)}" if asker is not None else ""
        if fix is None and any(_OPTIMIZERS in f.filename.replace("\\", "/") for f in frames):
            return CaptureError(
                "the optimizer decides by numbers that only the data knows",
                where=where,
                why="they are known only when the step runs, and the captured program is the same at every step"
                + asked,
                next_step="use one that updates the same way at every step (SGD, Adam, AdamW, RMSprop, NAdam do)",
            )
        return CaptureError(
            "the step asks for a number that depends on the data",
            where=where,
            why="it is known only when the step runs, and the captured program is the same at every step"
            + asked,
            next_step=fix or "keep the decision in tensors (torch.where), or take it outside the step",
        )
    if fix is None and _mixes_meta(error):
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


_REVERSE_TWICE = (
    "where forward derivatives are differentiated again (hessian, jacfwd, jvp), take them in reverse: "
    "jacrev(jacrev(f)) for hessian(f); else move the tensor that is on meta to the device of the others"
)


def _mixes_meta(error: Exception) -> bool:
    """Whether an operation met a tensor on meta beside others: torch makes such where it adds a tangent of zeros."""
    told = str(error)
    return "meta" in told and (
        "same device" in told or "different devices" in told
    )  # as torch's versions put it


def unread_attribute(name: str, content: object, error: BaseException | None) -> CaptureError:
    """The error for an attribute of the batch that the step reads, and whose value cannot be compared at each call.

    Args:
        name: as the user reaches it.
        content: of the attribute.
        error: raised where it was read; None where the step went on.
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
