"""What is known to help where a library asks for a number that only the data knows, or makes a shape of one.

A row decides nothing but the words of a refusal.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from typing import Final

from neaptide.frontends.source.users_code import is_library_file

_PADDED: Final = "keep the batch padded, and mask the padding in the loss (torch.where)"

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
        "call update_parameters in a statement of the step behind its last operation",
    ),
    ("torchmetrics/", "", "update the metric behind the last tensor operation, or with validate_args=False"),
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
    ("", ".numpy(", "stay in torch, or take it behind the last tensor operation, as a statement of the step"),
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
