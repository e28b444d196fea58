"""What is known to help where a library asks for a number that only the data knows, or makes a shape of one.

A row says where the question is asked, and what to do about it. It decides nothing but the words of a refusal.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.frontends.source.users_code import is_library_file


@dataclass(frozen=True)
class KnownFix:
    """A row.

    Attributes:
        file: part of the path of the file that asks; empty for any.
        word: part of the line that asks, or of the name of its function; empty for any.
        next_step: what helps.
    """

    file: str
    word: str
    next_step: str


KNOWN_FIXES = (
    KnownFix("torch/distributions/", "", "pass validate_args=False to the distribution"),
    KnownFix(
        "torch/nn/modules/transformer.py",
        "_detect_is_causal_mask",
        "say whether the mask is causal: tgt_is_causal=True or False (is_causal= for an encoder, "
        "src_is_causal= for the source), or make the mask inside the step",
    ),
    KnownFix(
        "torch/nn/utils/rnn.py", "", "keep the batch padded, and mask the padding in the loss (torch.where)"
    ),
    KnownFix(
        "", "pack_padded_sequence", "keep the batch padded, and mask the padding in the loss (torch.where)"
    ),
    KnownFix(
        "torch/nn/modules/rnn.py",
        "",
        "give it a padded batch, and mask the padding in the loss (torch.where)",
    ),
    KnownFix(
        "torch/optim/swa_utils.py",
        "",
        "call update_parameters in a statement of the step behind its last operation",
    ),
    KnownFix(
        "torchmetrics/", "", "update the metric behind the last tensor operation, or with validate_args=False"
    ),
    KnownFix(
        "",
        "ctc_loss",
        "pass the lengths with the batch, or as tuples of Python numbers (lengths.tolist() outside the step): the memory of this loss "
        "follows from them",
    ),
    KnownFix("", "one_hot(", "say how many classes there are: one_hot(x, num_classes=...)"),
    KnownFix("", "repeat_interleave(", "say how long the result is: repeat_interleave(..., output_size=...)"),
    KnownFix("", "bincount(", "count with one_hot(x, num_classes=...).sum(0), or scatter_add into zeros"),
    KnownFix(
        "",
        ".isfinite(",
        "raise where it is not (if not torch.isfinite(loss): raise ...): checks run with the program",
    ),
    KnownFix(
        "", ".isnan(", "raise where it is (if torch.isnan(loss): raise ...): checks run with the program"
    ),
    KnownFix(
        "",
        ".numpy(",
        "stay in torch, or take it behind the last tensor operation, as a statement of the step",
    ),
)
"""The first row that fits is taken, from the innermost line outwards."""

_TRACING = (
    "_subclasses",
    "fx",
    "_dynamo",
    "_library",
    "_prims_common",
    "_refs",
    "_decomp",
    "_inductor",
    "_functorch",
)
_TRACING_FILES = (
    "__init__.py",
    "_ops.py",
    "overrides.py",
    "_compile.py",
    "_meta_registrations.py",
    "_tensor.py",
    "utils/_",
)


def known_fix(frames: Sequence[traceback.FrameSummary]) -> str | None:
    """What helps, by the first row that fits the frames of a failed trace; None where nothing is known."""
    for frame in reversed(frames):
        file = frame.filename.replace(os.sep, "/")
        for row in KNOWN_FIXES:
            if row.file in file and (row.word in frame.name or row.word in (frame.line or "")):
                return row.next_step
    return None


def known_fix_of_line(line: str) -> str | None:
    """The same for one line of code, whatever its file."""
    return next((row.next_step for row in KNOWN_FIXES if not row.file and row.word in line), None)


def library_line(frames: Sequence[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """The innermost line of a library that the user calls; the machinery of the trace is no such library."""
    for frame in reversed(frames):
        file = frame.filename.replace(os.sep, "/")
        if not is_library_file(frame.filename):
            return None
        inside = file.partition("/torch/")[2]
        if not inside.startswith((*(f"{part}/" for part in _TRACING), *_TRACING_FILES)):
            return frame
    return None
