"""A made-up training step while it is written: its graph, its parameters with their gradients, and its updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.ir.builder import GraphBuilder, ValueId
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Source
from neaptide.ir.registry import OpRegistry
from neaptide.ir.values import Kind

FLOPS_PER_S: Final = 1e13
BYTES_PER_S: Final = 1e12


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """A made-up training step.

    Attributes:
        graph: forward, backward and optimizer in program order.
        registry: the rows of its ops.
        seconds: of one execution of each node.
    """

    graph: Graph
    registry: OpRegistry
    seconds: tuple[float, ...]


class StepTape:
    """A builder that knows phases, gradients and seconds."""

    def __init__(self, name: str, registry: OpRegistry) -> None:
        self.registry = registry
        self.builder = GraphBuilder(name, self.registry)
        self.phase = "forward"
        self.seconds: list[float] = []
        self.gradients: list[tuple[ValueId, ValueId]] = []

    def name(self, value: ValueId) -> str:
        return self.builder.values[value].name

    def tensor(self, name: str, shape: Sequence[int], kind: Kind) -> ValueId:
        return self.builder.input(name, shape, kind=kind)

    def parameter(self, name: str, shape: Sequence[int]) -> ValueId:
        return self.tensor(name, shape, Kind.PARAMETER)

    def gradient(self, parameter: ValueId, grad: ValueId) -> None:
        self.gradients.append((parameter, grad))

    def op(
        self,
        name: str,
        *operands: ValueId | float,
        outputs: Sequence[str],
        flops: float = 0.0,
        host: bool = False,
    ) -> tuple[ValueId, ...]:
        made = self.builder.node(
            f"toy.{name}", *operands, outputs=outputs, host=host, source=Source(phase=self.phase)
        )
        moved = 0
        if name != "view":
            for value in (*operands, *made):
                if isinstance(value, ValueId) and self.builder.values[value].storage is not None:
                    moved += self.builder.values[value].nbytes.constant_value()
        self.seconds.append(max(flops / FLOPS_PER_S, moved / BYTES_PER_S))
        return made

    def matmul(self, name: str, a: ValueId, b: ValueId, rows: int, inner: int, columns: int) -> ValueId:
        (made,) = self.op(
            "matmul", a, b, outputs=[f"{name}: f32[{rows}, {columns}]"], flops=2.0 * rows * inner * columns
        )
        return made

    def in_place(self, name: str, target: ValueId, *others: ValueId | float) -> ValueId:
        value = self.builder.values[target]
        shape = ", ".join(str(extent) for extent in value.shape)
        (made,) = self.op(name, target, *others, outputs=[f"{value.name}_{name}: f32[{shape}] @{value.name}"])
        return made

    def like(self, name: str, value: ValueId) -> str:
        shape = ", ".join(str(extent) for extent in self.builder.values[value].shape)
        return f"{name}: f32[{shape}]"

    def optimize(self, optimizer: str, *, clip: bool) -> None:
        self.phase = "optimizer"
        if clip:
            norms = [self.op("norm", grad, outputs=["norm: f32[1]"])[0] for _, grad in self.gradients]
            (factor,) = self.op("clip_factor", *norms, outputs=["factor: f32[1]"])
            self.gradients = [(p, self.in_place("mul_", g, factor)) for p, g in self.gradients]
        for parameter, grad in self.gradients:
            shape = tuple(e.constant_value() for e in self.builder.values[parameter].shape)
            name = self.name(parameter)
            momentum = self.tensor(f"{name}_m", shape, Kind.OPTIMIZER_STATE)
            if optimizer == "sgd":
                momentum = self.in_place("mul_", momentum, 0.9)
                momentum = self.in_place("add_", momentum, grad)
                self.in_place("add_", parameter, momentum)
                continue
            square = self.tensor(f"{name}_v", shape, Kind.OPTIMIZER_STATE)
            count = self.tensor(f"{name}_t", (1,), Kind.OPTIMIZER_STATE)
            count = self.in_place("add_", count, 1.0)
            decayed = self.in_place("mul_", parameter, 0.99)
            momentum = self.in_place("lerp_", momentum, grad)
            square = self.in_place("mul_", square, 0.999)
            square = self.in_place("addcmul_", square, grad)
            (root,) = self.op("sqrt", square, outputs=[self.like(f"{name}_root", square)])
            root = self.in_place("add_", root, 1e-8)
            self.in_place("addcdiv_", decayed, momentum, root, count)

    def finish(self) -> TrainingStep:
        return TrainingStep(self.builder.finish(), self.registry, tuple(self.seconds))
