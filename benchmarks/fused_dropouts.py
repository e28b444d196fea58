"""A training step whose dropouts draw and apply their masks in one operation: `factory("fused_dropouts@small")`.

`F.dropout` does both in one operation on other devices than the CPU; here the step calls that operation by itself. `tiny` is for
tests, `small` for measurements. Weights are random, data are made up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from neaptide.zoo import Batch, Step

NAME: Final = "fused_dropouts"
_CHANCE: Final = 0.1
_LR: Final = 1e-3
_SIZES: Final = {
    "tiny": {"batch": 4, "width": 16, "depth": 2, "classes": 10},
    "small": {"batch": 4096, "width": 256, "depth": 6, "classes": 1000},
}


def factory(spec: str) -> Callable[[], tuple[Step, Batch]]:
    """A function without arguments that builds `(step, batch)`; `spec` is `fused_dropouts@SIZE`."""
    return partial(_perceptron, **_SIZES[spec.partition("@")[2]])


def _perceptron(*, batch: int, width: int, depth: int, classes: int) -> tuple[Step, Batch]:
    """Layers four times as wide as what lies between them, with dropout after each."""
    import torch
    from torch import nn

    from neaptide.zoo.training import make_optimizer, make_step

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y, _ = torch.native_dropout(nn.functional.gelu(self.widen(x)), _CHANCE, True)
            return x + self.narrow(y)

    def loss_of(model: nn.Module, data: Batch) -> torch.Tensor:
        return nn.functional.cross_entropy(model(data["x"]), data["labels"])

    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(depth)), nn.Linear(width, classes))
    data = {"x": torch.randn(batch, width), "labels": torch.randint(classes, (batch,))}
    return make_step(model.train(), make_optimizer("adamw", model, _LR), loss_of, "cpu", "fp32"), data
