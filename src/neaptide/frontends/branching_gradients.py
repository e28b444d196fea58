"""Refuses gradients for which PyTorch looks at the numbers in eager and takes another formula in a trace.

Its derivative formulas ask whether a tensor is a plain one. Where they are told that it is not, they leave out a
shortcut for the usual case, such as a product without zeros. The result is the same but for its last bits. Of PyTorch's
formulas with such a question, these are the ones whose bits differ; `tests/frontends/test_branching_gradients.py` looks
through the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from neaptide.errors import CaptureError
from neaptide.frontends.recording import Record, Recording

aten = torch.ops.aten

# By autograd node: its forward operation, an operation that only the gradient in question has (None for any), and what
# to write instead.
_BRANCHING = {
    "ProdBackward0": (aten.prod.default, None, "take exp of the sum of logarithms, or multiply one by one"),
    "ProdBackward1": (
        aten.prod.dim_int,
        None,
        "take exp of the sum of logarithms, or multiply slice by slice",
    ),
    "MaskedFillBackward1": (
        aten.masked_fill.Tensor,
        aten.sum.default,
        "choose with torch.where(mask, value, x)",
    ),
}
if torch.__version__ < "2.13":  # later ones give the same bits either way
    _BRANCHING["CumprodBackward0"] = (aten.cumprod.default, None, "multiply slice by slice")


def check_gradients(recording: Recording, nodes: Mapping[int, str]) -> None:
    """Look a recording through for such a gradient. O(records).

    Args:
        recording: of a trace.
        nodes: names of the autograd nodes that ran, by sequence number.

    Raises:
        CaptureError: there is one; names the line of its forward operation.
    """
    suspects = {number: _BRANCHING[name] for number, name in nodes.items() if name in _BRANCHING}
    if not suspects:
        return
    forward: dict[int, Record] = {}
    for record in recording.records:
        if record.kind != "call" or record.sequence not in suspects:
            continue
        operation, telling, instead = suspects[record.sequence]
        if record.phase == "forward" and record.target is operation:
            forward[record.sequence] = record
        elif record.phase == "backward" and (telling is None or record.target is telling):
            raise _refusal(operation, forward.get(record.sequence, record), instead)


def _refusal(operation: Any, origin: Record, instead: str) -> CaptureError:
    name = operation._schema.name.removeprefix("aten::")  # noqa: SLF001 - the schema has no public name
    line = origin.line
    return CaptureError(
        f"the gradient of {name} depends on the data in a way that a trace cannot follow",
        where=None if line is None else line.location,
        why="in eager PyTorch looks at the numbers and takes a shortcut in the usual case; in a trace it never does, and "
        "the last bits differ",
        next_step=instead,
    )
