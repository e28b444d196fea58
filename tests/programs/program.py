"""What a program of the table is, and the registry that each family of them fills."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

Factory = Callable[[], tuple[Callable[..., Any], Any]]
_ADAM = partial(torch.optim.Adam, lr=1e-2)


@dataclass(frozen=True)
class Program:
    """One training step.

    Attributes:
        name: unique in the whole table.
        factory: returns `(step, batch)`, the same at every call.
        tags: what it is made of, to choose by.
    """

    name: str
    factory: Factory
    tags: tuple[str, ...] = ()


def descend(optimizer: Any, loss: Any, *, clears_first: bool = False) -> Any:
    """What ends most steps: gradients are cleared after the update, or in front of the backward pass."""
    if clears_first:
        optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if not clears_first:
        optimizer.zero_grad()
    return loss.detach()


def descending(
    optimizer: Any, loss_of: Callable[[Any], Any], *, clears_first: bool = False
) -> Callable[[Any], Any]:
    """A step that descends a loss of the batch."""

    def step(batch: Any) -> Any:
        return descend(optimizer, loss_of(batch), clears_first=clears_first)

    return step


def trained(loss_of: Callable[[Any], Any], *parts: Any, by: Any = _ADAM) -> Any:
    """A step that descends a loss, by the parameters of some modules and some parameters."""
    parameters = [p for part in parts for p in (part.parameters() if hasattr(part, "parameters") else [part])]
    return descending(by(parameters), loss_of, clears_first=True)


class Family:
    """Programs of one module, by name.

    Args:
        name: of the family, as the table has it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._programs: dict[str, Program] = {}

    def __iter__(self) -> Iterator[Program]:
        return iter(self._programs.values())

    def __len__(self) -> int:
        return len(self._programs)

    def add(self, *tags: str) -> Callable[[Factory], Factory]:
        """Decorator: the function is the factory of a program of its name."""

        def register(factory: Factory) -> Factory:
            self.put(factory.__name__, factory, *tags)  # type: ignore[attr-defined]
            return factory

        return register

    def put(self, name: str, factory: Factory, *tags: str) -> None:
        """A program under a name of its own."""
        assert name not in self._programs, name
        self._programs[name] = Program(name, factory, tags)
