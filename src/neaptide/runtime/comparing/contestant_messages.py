"""What goes between who compares programs and the process that runs one of them.

What runs for a captured program names that program by its number. The other process captures the same step, and puts its
own there: tensors and functions of the user never go through a pipe.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from neaptide.frontends.dims.dynamic_dims import Dynamic
from neaptide.frontends.programs.captured import CapturedProgram, CapturedStep
from neaptide.ir.graph import Graph
from neaptide.ir.serial import fingerprint
from neaptide.movers.slow_memory import SlowMemory
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant


@dataclass(frozen=True)
class CapturedFor:
    """How a step is captured whose programs are for a range of shapes."""

    factory: Callable[[], Any]
    dynamic: Dynamic


@dataclass(frozen=True)
class Wanted:
    """A contestant that another process is to make.

    Attributes:
        captured_for: how the step is captured; None for with the factory's batch, for its shape.
    """

    name: str
    factory: Callable[[], Any]
    seed: int
    threads: int
    planned: SentVariant | None
    captured_for: CapturedFor | None = None


@dataclass(frozen=True)
class SentVariant:
    """A variant without the objects of the user."""

    name: str
    checkpoints: str
    fingerprints: tuple[str, ...]
    graphs: bytes
    slow: SlowMemory

    @staticmethod
    def of(variant: PlannedVariant) -> SentVariant:
        """A variant, packed. O(size)."""
        programs = variant.captured.programs
        block = io.BytesIO()
        _Pickler(block, programs).dump(variant.graphs)
        return SentVariant(
            variant.captured.steady.graph.name,
            variant.captured.checkpoints,
            _fingerprints(programs),
            block.getvalue(),
            variant.slow,
        )

    def on(self, captured: CapturedStep) -> PlannedVariant | None:
        """The variant on another capture; None where that is of another step. O(size)."""
        if _fingerprints(captured.programs) != self.fingerprints:
            return None
        graphs: tuple[PlannedGraph, ...] = _Unpickler(io.BytesIO(self.graphs), captured.programs).load()
        return PlannedVariant(captured, graphs, slow=self.slow)


@dataclass(frozen=True)
class Failed:
    """Why the other process has no answer."""

    what: str
    where: str


def _fingerprints(programs: Sequence[CapturedProgram]) -> tuple[str, ...]:
    return tuple(fingerprint(program.graph) for program in programs)


def _read_only(content: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(content)  # the class itself has no name that could be written


class _Pickler(pickle.Pickler):
    """Writes the number of a captured program, or of its graph, in place of it."""

    def __init__(self, block: io.BytesIO, programs: Sequence[CapturedProgram]) -> None:
        super().__init__(block, pickle.HIGHEST_PROTOCOL)
        self._numbers = {id(program): ("program", index) for index, program in enumerate(programs)}
        self._numbers |= {id(program.graph): ("graph", index) for index, program in enumerate(programs)}

    def persistent_id(self, one: Any) -> tuple[str, int] | None:
        """The number of what is not written."""
        return self._numbers.get(id(one)) if isinstance(one, (CapturedProgram, Graph)) else None

    def reducer_override(self, one: Any) -> Any:
        """How a read-only view of a dict is made again; for all else, what pickle does."""
        return (_read_only, (dict(one),)) if isinstance(one, MappingProxyType) else NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, block: io.BytesIO, programs: Sequence[CapturedProgram]) -> None:
        super().__init__(block)
        self._programs = programs

    def persistent_load(self, number: Any) -> CapturedProgram | Graph:
        """The program, or the graph, of a number."""
        kind, index = number
        program: CapturedProgram = self._programs[index]
        return program if kind == "program" else program.graph
