"""Whether a program for all shapes has the size of its example where an expression should be: asked of fake tensors.

Each operation is run at a shape that the program was not traced with, on tensors without bytes, and what it makes is compared
with the sizes that the program says it has there. An operation that fits at the example alone was given a number of the
example. Numbers that change no size, as a factor in a mean, are not found.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from neaptide.errors import CaptureError, LoweringError
from neaptide.frontends.programs.captured import CapturedProgram
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.ir.values import Value
from neaptide.lower.torch_code import FunctionWriter
from neaptide.runtime._torch_private import new_asking_mode, new_fake, quiet_fakes
from neaptide.symbolic.dims import Dim

_MOST_SHAPES: Final = 64
_FAKE_ERRORS: Final = (RuntimeError, TypeError, ValueError, IndexError, AttributeError)

Shape = Mapping[str, int]


def check_sizes(program: CapturedProgram, example: Shape, registry: OpRegistry) -> None:
    """Ask each operation of a program with symbolic sizes, alike ones once, whether it fits at another shape than its example.

    What a fake tensor cannot be asked at the example either is left out. Nothing is asked where no other shape was found, and
    nothing of loops. O(nodes + distinct operations x a fake call).

    Raises:
        CaptureError: an operation has a size of the example in it; names it.
    """
    graph = program.graph
    known = {dim.name: example[dim.name] for dim in graph.dims}
    other = next((shape for shape in _others(graph.dims, known) if program.sizes.hold(shape)), None)
    if other is None:
        return
    there, here = _Fakes(graph, other, registry), None
    for node in _distinct(graph):
        found = there.misfit(node)
        if found is None:
            continue
        here = here or _Fakes(graph, known, registry)
        if here.misfit(node) is None:
            sizes = ", ".join(f"{dim} = {size}" for dim, size in other.items())
            traced = ", ".join(f"{dim} = {size}" for dim, size in known.items())
            raise CaptureError(
                f"{node.op} has a size of the example in it, and the program is for other sizes as well",
                where=node.source.location or None,
                why=f"it was traced with {traced}; where {sizes}, {found}",
                next_step="make this size follow from the shapes of the arguments, or leave its dim out of dynamic=",
            )


def _others(dims: Sequence[Dim], example: Shape) -> Iterator[Shape]:
    """Shapes of which no size is that of the example."""
    sizes = []
    for dim in dims:
        size = example[dim.name]
        near = (size + 1, size + 3, 2 * size, 3 * size, size - 1, size // 2, dim.low, dim.high)
        sizes.append([n for n in dict.fromkeys(near) if n is not None and n in dim and n != size])
    same = zip(*sizes, strict=False)
    each = itertools.islice(itertools.product(*sizes), _MOST_SHAPES)
    for found in (*same, *each):
        yield {dim.name: size for dim, size in zip(dims, found, strict=True)}


def _distinct(graph: Graph) -> Iterator[Node]:
    """Operations on tensors; of those that are called alike with alike tensors the first."""

    def told(value: Value) -> tuple[Any, ...]:
        return value.dtype, tuple(map(str, value.shape)), tuple(map(str, value.strides))

    seen = set()
    for node in graph.nodes:
        values = [graph.values[v] for v in (*node.inputs, *node.outputs)]
        if node.regions or any(graph.values[v].is_host_scalar for v in node.outputs):
            continue
        key = node.op, repr(node.args), repr(node.kwargs), len(node.inputs), tuple(map(told, values))
        if key not in seen:
            seen.add(key)
            yield node


class _Fakes:
    """Runs operations of a graph at one shape, on fake tensors."""

    def __init__(self, graph: Graph, shape: Shape, registry: OpRegistry) -> None:
        self._graph = with_sizes(graph, shape)
        self._writer = FunctionWriter(self._graph, registry)
        self._mode = new_asking_mode()

    def misfit(self, node: Node) -> str | None:
        """What does not fit, in words; None where all does."""
        graph, writer = self._graph, self._writer
        written = len(writer.lines)
        try:
            function = writer.function(graph.nodes[node.id], again=False)
            scope: dict[str, Any] = dict(writer.calls.globals)
            exec("\n".join(line.text for line in writer.lines[written:]), scope)  # noqa: S102
            with self._mode, quiet_fakes():
                made = scope[function.name](*(self._fake(graph.values[v]) for v in function.arguments))
        except (LoweringError, *_FAKE_ERRORS) as error:
            return str(error).splitlines()[0] if str(error) else type(error).__name__
        for value, output in zip((graph.values[v] for v in node.outputs), made, strict=True):
            expected = [extent.evaluate({}) for extent in value.shape]
            if isinstance(output, torch.Tensor) and list(output.shape) != expected:
                return f"it makes {list(output.shape)}, and the program has {expected}"
        return None

    def _fake(self, value: Value) -> Any:
        if value.is_host_scalar:
            return 1
        shape, strides = ([n.evaluate({}) for n in sizes] for sizes in (value.shape, value.strides))
        assert value.storage is not None
        device = torch.device(self._graph.storages[value.storage].device)
        return new_fake(self._mode, shape, strides, getattr(torch, value.dtype), device)
