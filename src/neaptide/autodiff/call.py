"""One operator of the model, as a derivative rule sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from neaptide.autodiff.emitter import Emitter, Tensor
from neaptide.autodiff.errors import GradientError

Rule: TypeAlias = Callable[["Call"], Sequence[Tensor | None]]


@dataclass(frozen=True, slots=True)
class Call:
    """One node and the adjoints of its results.

    Attributes:
        emitter: appends the nodes of the derivative.
        node: the operator.
        adjoints: derivative of the loss with respect to each result; None where the loss does not depend on it.
        wanted: by input, whether its adjoint is needed.
    """

    emitter: Emitter
    node: ir.Node
    adjoints: tuple[Tensor | None, ...]
    wanted: tuple[bool, ...]

    @property
    def g(self) -> Tensor:
        """The adjoint of the first result."""
        found = self.adjoints[0]
        if found is None:
            raise self.refusal("only its first result has a derivative, and the loss does not depend on that")
        return found

    @property
    def y(self) -> Tensor:
        """The first result."""
        return self.emitter.tensor(self.node.outputs[0])

    @property
    def a(self) -> Tensor:
        """The first input."""
        return self.input(0)

    @property
    def b(self) -> Tensor:
        """The second input."""
        return self.input(1)

    def input(self, index: int) -> Tensor:
        """An input that must be there."""
        found = self.optional(index)
        if found is None:
            raise self.refusal(f"its input {index} is absent")
        return found

    def optional(self, index: int) -> Tensor | None:
        """An input, or None where it is absent."""
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        return None if value is None else self.emitter.tensor(value)

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, or the default."""
        found = self.node.attributes.get(name)
        return default if found is None else found.value

    def array(self, index: int) -> npt.NDArray[Any] | None:
        """The numbers of a constant input, or None where it is absent.

        Raises:
            GradientError: the input is computed.
        """
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        if value is None:
            return None
        if value.const_value is None or value.is_graph_input():
            raise self.refusal(f"its input {value.name!r} must be a constant", "fold the model's constants")
        array: npt.NDArray[Any] = value.const_value.numpy()
        return array

    def ints(self, index: int) -> list[int] | None:
        """The numbers of a constant input of integers, or None where it is absent."""
        array = self.array(index)
        return None if array is None else [int(n) for n in np.atleast_1d(array)]

    def result(self, index: int, dtype: ir.DataType) -> Tensor:
        """A further result; a node that does not write it is made to."""
        node = self.node
        if index >= len(node.outputs):
            node.resize_outputs(index + 1)
        value = node.outputs[index]
        if not value.name:
            value.name = self.emitter.fresh_name(node.op_type)
        return Tensor(self.emitter, value, dtype)

    def reduced(self, adjoint: Tensor, operand: Tensor, shape: Sequence[int | str] | None = None) -> Tensor:
        """The sum of an adjoint over the axes along which an operand was broadcast.

        Args:
            adjoint: with the shape of the first result.
            operand: whose shape the adjoint shall have.
            shape: of the adjoint, where it is not the first result's.
        """
        have, need = tuple(self.y.dims if shape is None else shape), operand.dims
        if have == need:
            return adjoint
        added = len(have) - len(need)
        axes = [i for i in range(added) if have[i] != 1]
        for axis, (old, new) in enumerate(zip(have[added:], need, strict=True), added):
            if old == new:
                continue
            if new != 1:
                raise self.refusal(
                    f"whether {operand.value.name!r} is broadcast along axis {axis} is not known"
                )
            axes.append(axis)
        summed = adjoint.sum(axes)
        return summed.reshape_as(operand) if added else summed

    def refusal(self, why: str, next_step: str | None = None) -> GradientError:
        """The error that this node has no derivative here."""
        return GradientError(
            f"the derivative of {self.node.op_type} cannot be written",
            where=self.node.name or self.node.outputs[0].name,
            why=why,
            next_step=next_step,
        )
