"""A planned graph to `NAME.c` and `NAME.h`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neaptide.errors import LoweringError, UsageError
from neaptide.files.writing import write_atomic
from neaptide.ir.graph import Graph
from neaptide.lower.c.code import Code, copy
from neaptide.lower.c.emit import write_calls
from neaptide.lower.c.memory import ONE_MEMORY, Memory, place
from neaptide.lower.c.operators.node_call import Numbers
from neaptide.lower.c.operators.rows import check_operators
from neaptide.lower.c.program import Program, model_inputs, storages_of
from neaptide.lower.c.sharing import Views
from neaptide.lower.c.source import Port, array_name, header, source
from neaptide.lower.c.views import C_TYPES, View
from neaptide.outcome import Limits

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class CProgram:
    """What was written.

    Attributes:
        arena_bytes: of each memory, in the order given.
        live_bytes: most bytes live at one step; no arena of this order is smaller.
        constant_bytes: of weights that stay as they are.
        variable_bytes: of weights that a run updates.
    """

    source: str
    header: str
    arena_bytes: tuple[int, ...]
    live_bytes: int
    constant_bytes: int
    variable_bytes: int


@dataclass(frozen=True, slots=True)
class CSettings:
    """How a program is written.

    Attributes:
        memories: of the device, the fastest first.
        limits: of the search for a layout.
        red_zone_bytes: after every buffer; a build with AddressSanitizer then sees each step outside its buffers.
    """

    memories: tuple[Memory, ...] = ONE_MEMORY
    limits: Limits | None = None
    red_zone_bytes: int = 0


def write_program(
    graph: Graph,
    order: Sequence[int],
    weights: Mapping[int, Numbers],
    name: str,
    settings: CSettings | None = None,
    *,
    updates: Mapping[int, int] | None = None,
    titles: Mapping[int, str] | None = None,
) -> CProgram:
    """The C file and the header of a graph in an order.

    Args:
        order: ids of the nodes that run, those that make weights need not be among them.
        weights: by value, numbers that are known: weights, and what nodes make of weights alone.
        updates: by output, the weight whose place it takes; that weight becomes a variable array.
        titles: by value, its name in the model's file.

    Raises:
        LoweringError: an operator, element type or setting that has no kernel, or a dim without a size.
        InfeasibleBudget: the memories are too small.
    """
    settings, updates = settings or CSettings(), updates or {}
    _check(graph, name)
    program = _program(graph, order, weights, updates)
    check_operators(graph, program.order)
    arrays = {array_name(name, memory): memory for memory in settings.memories}
    sharing, arena = place(program, arrays, settings.limits, red_zone_bytes=settings.red_zone_bytes)
    code = Code()
    views = Views(sharing, program, _weights(code, graph, weights, set(updates.values())), arena.places)
    write_calls(code, program, sharing, arena, views)
    for made, weight in updates.items():
        if views[made] != views[weight]:
            code.line(f"/* the new {graph.values[weight].name} */")
            copy(code, views[made], views[weight])
    outputs = [v for v in dict.fromkeys(graph.outputs) if v not in updates]
    code.needed.update(views[value].place.base for value in outputs)
    groups = {"in": model_inputs(graph), "out": outputs, "weight": list(dict.fromkeys(updates.values()))}
    ports = {
        direction: [_port(graph, value, titles or {}, views[value], list(arrays)) for value in group]
        for direction, group in groups.items()
    }
    nbytes = [(array.nbytes, is_variable) for _, array, is_variable in code.used_constants()]
    return CProgram(
        source(name, code, settings.memories, arena, ports),
        header(name, settings.memories, arena, ports),
        arena.sizes,
        arena.live_bytes,
        sum(size for size, is_variable in nbytes if not is_variable),
        sum(size for size, is_variable in nbytes if is_variable),
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


def _program(
    graph: Graph, order: Iterable[int], weights: Mapping[int, Numbers], updates: Mapping[int, int]
) -> Program:
    """The nodes that run: all whose results are not known."""
    changing = set(updates.values())
    running = [n for n in order if not weights.keys() >= set(graph.nodes[n].outputs)]
    outside = storages_of(graph, weights.keys() | set(graph.inputs).difference(model_inputs(graph)))
    return Program(
        graph,
        _with_late_updates(graph, running, updates),
        {value: array for value, array in weights.items() if value not in changing},
        outside,
        kept=storages_of(graph, graph.outputs) - outside,
        given=storages_of(graph, model_inputs(graph)),
        updates=updates,
    )


def _with_late_updates(graph: Graph, order: list[int], updates: Mapping[int, int]) -> tuple[int, ...]:
    """The order in which a weight is replaced after its last use, so that the new numbers can be written on top of it."""
    for made, weight in updates.items():
        storage = graph.values[weight].storage
        uses = [n for n in order if any(graph.values[v].storage == storage for v in graph.nodes[n].inputs)]
        maker = graph.producer(made)
        is_used = any(made in graph.nodes[n].inputs for n in order)
        if maker in order and uses and not is_used and order.index(uses[-1]) > order.index(maker):
            order.remove(maker)
            order.insert(order.index(uses[-1]) + 1, maker)
    return tuple(order)


def _weights(code: Code, graph: Graph, weights: Mapping[int, Numbers], variable: set[int]) -> dict[int, View]:
    """An array for each weight."""
    return {
        value: code.constant(
            f"w{value}_{_identifier(graph.values[value].name)}", array, is_variable=value in variable
        )
        for value, array in weights.items()
    }


def _identifier(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "tensor"


def _port(graph: Graph, value: int, names: Mapping[int, str], view: View, arrays: Sequence[str]) -> Port:
    title = names.get(value, graph.values[value].name)
    memory = arrays.index(view.place.base) if view.place.base in arrays else None
    return Port(_identifier(title), title, view, memory)
