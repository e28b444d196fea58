"""All rules by operator, and the operators at which derivatives end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from neaptide.autodiff.call import Rule
from neaptide.autodiff.rules import (
    convolutions,
    elementwise,
    indexing,
    losses,
    movement,
    normalizations,
    pools,
    products,
    reductions,
)

RULES: Final[Mapping[str, Rule]] = {
    **elementwise.RULES,
    **reductions.RULES,
    **products.RULES,
    **convolutions.RULES,
    **pools.RULES,
    **normalizations.RULES,
    **movement.RULES,
    **indexing.RULES,
    **losses.RULES,
}
"""How the adjoints of an operator's inputs follow from those of its results, by operator of the standard domain."""

FINAL: Final = frozenset(
    {
        *(
            "Greater",
            "GreaterOrEqual",
            "Less",
            "LessOrEqual",
            "Equal",
            "And",
            "Or",
            "Xor",
            "Not",
            "IsNaN",
            "IsInf",
        ),
        *("Sign", "Floor", "Ceil", "Round", "ArgMax", "ArgMin", "NonZero", "OneHot"),
        *("Shape", "Size", "ConstantOfShape", "EyeLike", "Range", "Constant"),
        *(
            "RandomNormal",
            "RandomNormalLike",
            "RandomUniform",
            "RandomUniformLike",
            "Bernoulli",
            "Multinomial",
        ),
    }
)
"""Operators whose results are constant almost everywhere, so that no derivative passes."""
