"""A planned graph to `NAME.c` and `NAME.h`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neaptide.errors import LoweringError, UsageError
from neaptide.ir.graph import Graph
from neaptide.lower.c.code import Code, copy
from neaptide.lower.c.emit import scope_of, write_calls
from neaptide.lower.c.memory import ONE_MEMORY, Memory, place
from neaptide.lower.c.node_call import Numbers
from neaptide.lower.c.rows import check_operators
from neaptide.lower.c.sharing import Program
from neaptide.lower.c.source import Port, array_name, header, source
from neaptide.lower.c.views import C_TYPES, Place, View
from neaptide.outcome import Limits
from neaptide.writing import write_atomic

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class CProgram:
    """What was written.

    Attributes:
        arena_bytes: of each memory, in the order given.
        live_bytes: most bytes live at one step; no arena of this order is smaller.
        weight_bytes: of constant arrays, and of the variable ones that the program updates.
    """

    source: str
    header: str
    arena_bytes: tuple[int, ...]
    live_bytes: int
    weight_bytes: int


def write_program(
    graph: Graph,
    order: Sequence[int],
    weights: Mapping[int, Numbers],
    name: str,
    *,
    memories: Sequence[Memory] = ONE_MEMORY,
    updates: Mapping[int, int] | None = None,
    titles: Mapping[int, str] | None = None,
    limits: Limits | None = None,
    red_zone_bytes: int = 0,
) -> CProgram:
    """The C file and the header of a graph in an order.

    Args:
        order: ids of all nodes, those that make weights included.
        weights: by value, numbers that are known: weights, and what nodes make of weights alone.
        updates: by output, the weight whose place it takes; that weight becomes a variable array.
        titles: by value, its name in the model's file.
        red_zone_bytes: after every buffer, for the checked build.

    Raises:
        LoweringError: an operator, element type or setting that has no kernel, or a dim without a size.
        InfeasibleBudget: the memories are too small.
    """
    _check(graph, name)
    updates = updates or {}
    known = {value: array for value, array in weights.items() if value not in updates.values()}
    computed = _computed(graph, order, {*weights})
    program = Program(
        graph,
        computed,
        known,
        outside=_storages(graph, weights),
        kept=_storages(graph, graph.outputs),
        given=_storages(graph, graph.inputs) - _storages(graph, weights),
        updates=updates,
    )
    check_operators(graph, computed)
    sharing, arena = place(program, memories, limits, red_zone_bytes=red_zone_bytes)
    code = Code()
    arrays = [array_name(name, memory) for memory in memories]
    given = _weights(code, graph, weights, set(updates.values()))
    scope = scope_of(program, sharing, arena, tuple(map(Place, arrays)), given)
    write_calls(code, scope)
    for made, weight in updates.items():
        if scope.views[made] != scope.views[weight]:
            _copy_back(code, scope.views[made], scope.views[weight])
    names = titles or {}
    inputs = [v for v in graph.inputs if v not in weights]
    outputs = [v for v in dict.fromkeys(graph.outputs) if v not in updates and v not in weights]
    ports = tuple(
        [_port(graph, value, names, scope.views[value], arrays) for value in group] for group in (inputs, outputs)
    )
    return CProgram(
        source(name, code, memories, arena, (ports[0], ports[1])),
        header(name, memories, arena, ports[0], ports[1]),
        arena.sizes,
        arena.live_bytes,
        sum(nbytes for *_, nbytes in code.used_constants()),
    )


def save(program: CProgram, folder: Path, name: str) -> tuple[Path, Path]:
    """Write `NAME.c` and `NAME.h` to a folder, which is made; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / f"{name}.c", folder / f"{name}.h"
    write_atomic(paths[0], program.source)
    write_atomic(paths[1], program.header)
    return paths


def _check(graph: Graph, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a C program", why="it must be an identifier of C")
    dims = {dim for value in graph.values for extent in value.shape for dim in extent.dims()}
    if dims:
        raise LoweringError(
            f"the sizes of the model are not known: {', '.join(sorted(dims))}",
            why="an arena of C has a fixed size",
            next_step="give each dim a size, and export the model again",
        )
    for value in graph.values:
        if value.dtype not in C_TYPES:
            raise LoweringError(
                f"{value.name} has the element type {value.dtype}",
                why=f"the C target takes {', '.join(C_TYPES)}",
                next_step="plan this model for another target",
            )


def _computed(graph: Graph, order: Iterable[int], known: set[int]) -> tuple[int, ...]:
    """Nodes that run, in their order: all whose results are not known."""
    return tuple(n for n in order if not known.issuperset(graph.nodes[n].outputs))


def _storages(graph: Graph, values: Iterable[int]) -> frozenset[int]:
    return frozenset(s for value in values if (s := graph.values[value].storage) is not None)


def _weights(
    code: Code, graph: Graph, weights: Mapping[int, Numbers], variable: set[int]
) -> dict[int, View]:
    """An array for each weight."""
    return {
        value: code.constant(
            f"w{value}_{_identifier(graph.values[value].name)}", array, is_variable=value in variable
        )
        for value, array in weights.items()
    }


def _copy_back(code: Code, source_view: View, target: View) -> None:
    code.line("/* update */")
    copy(code, source_view, target)


def _identifier(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "tensor"


def _port(graph: Graph, value: int, names: Mapping[int, str], view: View, arrays: Sequence[str]) -> Port:
    title = names.get(value, graph.values[value].name)
    memory = arrays.index(view.place.base) if view.place.base in arrays else 0
    return Port(_identifier(title), title, view, memory)
