"""Facts of ONNX operators that passes ask for and that traits do not say, by operator."""

from __future__ import annotations

from typing import Final

MONOTONE: Final = frozenset(
    {
        "Relu",
        "Clip",
        "Sigmoid",
        "Tanh",
        "HardSigmoid",
        "Softplus",
        "Ceil",
        "Floor",
        "Round",
        "Erf",
        "Softsign",
    }
)
"""Element by element, a greater element never makes a lesser one: the greatest result is that of the greatest element."""

MOVEMENTS: Final = frozenset(
    {"Transpose", "Slice", "Expand", "Tile", "Gather", "DepthToSpace", "SpaceToDepth"}
)
"""Elements of the first operand elsewhere, none of them changed: a cast gives the same before and behind."""

SAME_IF_ALONE: Final = frozenset({"Concat", "Sum", "Max", "Min", "Mean"})
"""Of one operand, that operand."""

SAME_IF_SHAPED: Final = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Expand"})
"""The operand, where the shape stays."""

COMPARED: Final = frozenset(
    {"MaxPool", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"}
)
"""Elements are compared or moved, never computed with: on whole numbers of one scale the results are those of the numbers
that they stand for."""
