"""What the zoo knows about a model before any framework is imported."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from neaptide.errors import MissingExtra, how_to_install

if TYPE_CHECKING:
    import torch

Batch: TypeAlias = "dict[str, torch.Tensor]"
Step: TypeAlias = "Callable[[Batch], torch.Tensor]"

SIZES: Final = ("tiny", "small", "paper")

PRECISIONS: Final = ("fp32", "bf16", "bf16_params")
"""`fp32`; `bf16`: parameters in fp32, forward and loss under `torch.autocast`; `bf16_params`: the model cast to bf16."""

COMMON_DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {"precision": "fp32", "seed": 0, "device": "cpu"}
)
"""Options that every model takes, unless its size says otherwise."""


@dataclass(frozen=True, slots=True)
class ZooModel:
    """One model of the zoo: what it is, its options at each size, and how to build it.

    Its step trains, and is the same for the same seed. `tests/zoo/test_model_conformance.py` holds each model of `MODELS`.

    Attributes:
        sizes: for each of `SIZES`, the keyword arguments of `build`, without those of `COMMON_DEFAULTS`.
        build: makes `(step, batch)` from those arguments; imports torch (and transformers) when called.
    """

    name: str  # what `factory` calls it
    summary: str  # one line: architecture, source, optimizer
    sizes: Mapping[str, Mapping[str, Any]]
    build: Callable[..., tuple[Step, Batch]]


def build_from(module: str, family: str, /, **options: Any) -> tuple[Step, Batch]:
    """Import `neaptide.zoo.<module>` and build its `family`."""
    try:
        training = importlib.import_module("neaptide.zoo.training")
        families = importlib.import_module(f"neaptide.zoo.{module}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in {"torch", "transformers"}:
            raise
        raise MissingExtra(
            f"the zoo needs {missing}, which is not installed",
            why=f"neaptide.zoo.{module} is written with {missing}",
            next_step=how_to_install("zoo"),
        ) from error
    return cast("tuple[Step, Batch]", training.build(getattr(families, family), training.Sizes(**options)))
