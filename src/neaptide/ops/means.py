"""Operations that take a mean, and how each is said with a sum: the divisor counts all elements, never those of a part.

Facts of the PyTorch operator schemas (`native_functions.yaml`): `reduction` is 0 for none, 1 for the mean, 2 for the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from neaptide.ir.nodes import Arg, Node

MEAN: Final = 1
SUM: Final = 2

# Of what a sum and its divisor are made.
DIVIDE: Final = "aten.div.Tensor"
DIVIDE_BY_NUMBER: Final = "aten.div.Scalar"
FILL_WHERE: Final = "aten.masked_fill.Scalar"
IS: Final = "aten.eq.Scalar"
IS_NOT: Final = "aten.ne.Scalar"
SELECT: Final = "aten.index_select.default"
SUM_OF_ALL: Final = "aten.sum.default"


@dataclass(frozen=True, slots=True)
class MeanLoss:
    """A loss that divides by the number of its elements, or by the weights of its targets.

    Attributes:
        reduction: position of the argument that says how it reduces.
        default: what it is where it is not given.
        target: position of class numbers whose weights are the divisor; None where the divisor is a number of elements.
        weight: position of the weights of classes.
        ignored: position of the class that does not count.
    """

    reduction: int
    default: int = MEAN
    target: int | None = None
    weight: int = 2
    ignored: int = 4

    def is_mean(self, node: Node) -> bool:
        """Whether a call takes the mean."""
        return self.setting(node) == MEAN

    def setting(self, node: Node) -> Arg:
        """How a call reduces."""
        if self.reduction < len(node.args):
            return node.args[self.reduction]
        return node.kwarg("reduction", self.default)


MEAN_LOSSES: Final[Mapping[str, MeanLoss]] = MappingProxyType(
    {
        "aten.nll_loss_forward.default": MeanLoss(3, target=1),
        "aten.nll_loss2d_forward.default": MeanLoss(3, target=1),
        "aten.mse_loss.default": MeanLoss(2),
        "aten.smooth_l1_loss.default": MeanLoss(2),
        "aten.huber_loss.default": MeanLoss(2),
        "aten.soft_margin_loss.default": MeanLoss(2),
        "aten.binary_cross_entropy.default": MeanLoss(3),
        "aten.binary_cross_entropy_with_logits.default": MeanLoss(4),
    }
)
"""Losses, by name. The first operand has as many elements as the loss has before it is reduced."""

MEAN_LOSS_GRADIENTS: Final[Mapping[str, MeanLoss]] = MappingProxyType(
    {
        "aten.mse_loss_backward.default": MeanLoss(3),
        "aten.smooth_l1_loss_backward.default": MeanLoss(3),
        "aten.huber_loss_backward.default": MeanLoss(3),
        "aten.soft_margin_loss_backward.default": MeanLoss(3),
        "aten.binary_cross_entropy_backward.default": MeanLoss(4),
    }
)
"""Their gradients, that divide what comes back to them (their first operand) by the number of elements.

Those of the negative log likelihood take the divisor as an operand, so they are what they are.
"""

MEANS: Final[Mapping[str, str]] = MappingProxyType(
    {"aten.mean.default": "aten.sum.default", "aten.mean.dim": "aten.sum.dim_IntList"}
)
"""Means of a tensor, or along some of its dims, and the sums that take the same arguments."""
