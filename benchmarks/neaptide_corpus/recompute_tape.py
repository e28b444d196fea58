"""Builds recompute instances: forward operations are written down, the backward follows from them.

The result is a list of plain dicts, as `neaptide.schedule.recompute_form` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

RecomputeForm = list[dict[str, Any]]
"""`[{"name", "phase", "layer", "flops", "moved", "size", "deps", "out"}]`, in running order."""

SAVES_NOTHING: Final = 0
SAVES_INPUTS: Final = 1
SAVES_OUTPUT: Final = 2


@dataclass(slots=True)
class _Forward:
    """A forward operation and what its backward needs to know."""

    name: str
    node: int
    inputs: tuple[int, ...]
    flops: float
    weight: int
    saves: int
    side: int | None
    layer: int | str
    is_trained: bool
    gradients: list[int] = field(default_factory=list)


class RecomputeTape:
    """A training step in the making. Parameters and inputs are persistent and are not part of it.

    >>> tape = RecomputeTape()
    >>> x = tape.op("embedding", 64, weight=32)
    >>> y = tape.op("linear", 64, [x], flops=1e3, weight=16, saves=SAVES_INPUTS)
    >>> [row["name"] for row in tape.finish([y])]
    ['embedding', 'linear', 'linear.start', 'linear.input', 'linear.weight', 'embedding.weight']
    """

    def __init__(self) -> None:
        self._rows: RecomputeForm = []
        self._forward: dict[int, _Forward] = {}

    def size(self, node: int) -> int:
        """Bytes of what a node makes."""
        return int(self._rows[node]["size"])

    def op(
        self,
        name: str,
        size: int,
        inputs: Sequence[int] = (),
        *,
        flops: float = 0.0,
        weight: int = 0,
        saves: int = SAVES_NOTHING,
        side: int = 0,
        layer: int | str = "",
    ) -> int:
        """Append a forward operation; returns its node.

        Args:
            name: for reports.
            size: bytes that it makes.
            inputs: nodes whose bytes it reads.
            flops: of it; its backward has as many for the input and for the weight.
            weight: bytes of its parameters, which get a gradient that stays to the end.
            saves: what its backward reads: `SAVES_INPUTS`, `SAVES_OUTPUT` or `SAVES_NOTHING`.
            side: bytes of a small second result that its backward reads as well.
            layer: for reports.
        """
        reads = tuple(dict.fromkeys(inputs))
        node = self._add(name, "fwd", layer, size, reads, flops, weight)
        beside = None
        if side:
            beside = self._add(f"{name}.side", "fwd", layer, side, reads, 0.0, 0, is_free=True)
        is_trained = bool(weight) or any(self._forward[read].is_trained for read in reads)
        self._forward[node] = _Forward(name, node, reads, flops, weight, saves, beside, layer, is_trained)
        return node

    def finish(self, losses: Iterable[int]) -> RecomputeForm:
        """Append the backward of some results and return the instance. O(nodes + dependencies).

        What depends on no parameter gets no gradient.
        """
        for loss in losses:
            made = self._forward[loss]
            start = self._add(f"{made.name}.start", "bwd", made.layer, self.size(loss), [loss], 0.0, 0)
            made.gradients.append(start)
        for made in reversed(self._forward.values()):
            if made.gradients:
                self._backward(made)
        return self._rows

    def _backward(self, made: _Forward) -> None:
        gradient = made.gradients[0]
        for other in made.gradients[1:]:
            gradient = self._add(
                f"{made.name}.sum", "bwd", made.layer, self.size(made.node), [gradient, other], 0.0, 0
            )
        saved = [*made.inputs] if made.saves & SAVES_INPUTS else []
        saved += [made.node] if made.saves & SAVES_OUTPUT else []
        saved += [] if made.side is None else [made.side]
        passes = not made.saves and not made.flops and not made.weight
        for read in made.inputs:
            if not self._forward[read].is_trained:
                continue
            if passes and self.size(read) == self.size(made.node):
                # An addition hands its gradient on as it is.
                self._forward[read].gradients.append(gradient)
                continue
            # With a weight the input's gradient needs the weight alone, which is persistent.
            needed = [gradient] if made.weight and made.flops else [gradient, *saved]
            self._forward[read].gradients.append(
                self._add(
                    f"{made.name}.input",
                    "bwd",
                    made.layer,
                    self.size(read),
                    needed,
                    made.flops,
                    made.weight,
                )
            )
        if made.weight:
            needed = [gradient, *saved] if made.inputs else [gradient]
            node = self._add(f"{made.name}.weight", "bwd", made.layer, made.weight, needed, made.flops, 0)
            self._rows[node]["out"] = True

    def _add(
        self,
        name: str,
        phase: str,
        layer: int | str,
        size: int,
        reads: Iterable[int],
        flops: float,
        weight: int,
        *,
        is_free: bool = False,
    ) -> int:
        deps = list(dict.fromkeys(reads))
        moved = 0 if is_free else size + weight + sum(self.size(read) for read in deps)
        self._rows.append(
            {
                "name": name,
                "phase": phase,
                "layer": layer,
                "flops": flops,
                "moved": moved,
                "size": int(size),
                "deps": deps,
                "out": False,
            }
        )
        return len(self._rows) - 1
