"""Programs that are compared, each in a process of its own: what one leaves in heap and caches, no other finds.

What lies at the end of a heap decides whether a step touches fresh pages, and those are up to a fifth of its time
(`docs/explanation/seconds.md`). That is no property of a program: it differs from one process to the next. So these
processes keep what is freed, unless the environment says otherwise.
"""

from __future__ import annotations

import contextlib
import io
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import torch

from neaptide.copy_engines.copy_engine import SlowMemory
from neaptide.errors import NeaptideError, ProgramError, UsageError
from neaptide.frontends.dims.dynamic_dims import Dynamic
from neaptide.frontends.programs.captured import CapturedProgram, CapturedStep
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.graph import Graph
from neaptide.planner.variants.processes.messages import Child, packed, unpacked
from neaptide.runtime.comparing.contestants import (
    Factory,
    Rival,
    eager_contestant,
    planned_contestant,
    rebind,
)
from neaptide.runtime.measuring.meter import StepMeasurement
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant

MakeRival = Callable[[str, PlannedVariant | None], Rival]
"""A rival of a name for a variant; for None, the user's function as it is."""

_WORKER: Final = "neaptide.runtime.comparing.contestant_worker"
# For glibc. Either of them alone would turn off what it learns: from which size on blocks are mapped for themselves. So that is
# set to where it ends up in any process that frees large blocks, `DEFAULT_MMAP_THRESHOLD_MAX`.
KEEPING_HEAP: Final = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**40)}


@contextlib.contextmanager
def rivals(
    factory: Factory, seed: int, *, own_processes: bool, captured_for: CapturedFor | None = None
) -> Iterator[MakeRival]:
    """What makes the programs that are compared; their processes end with the block.

    Args:
        own_processes: run each in a process of its own, which makes the factory, and captures the step, once more.
    """
    if not own_processes:
        yield (
            lambda name, variant: (
                eager_contestant(factory, seed, name)
                if variant is None
                else planned_contestant(name, factory, seed, rebind(variant))
            )
        )
        return
    with contextlib.ExitStack() as stack:

        def make(name: str, variant: PlannedVariant | None) -> Rival:
            planned = None if variant is None else SentVariant.of(variant)
            made = _RivalElsewhere(
                Wanted(name, factory, seed, torch.get_num_threads(), planned, captured_for)
            )
            stack.callback(made.close)
            return made

        yield make


class _RivalElsewhere(Child):
    """Stands for a contestant in a process of its own, which begins at once and is heard when it is first asked."""

    def __init__(self, wanted: Wanted) -> None:
        self.name = wanted.name
        try:
            block = packed(wanted)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UsageError(
                "another process cannot make this factory",
                why=str(error),
                next_step="put the factory into a module, outside of other functions, or leave out own_processes",
            ) from error
        super().__init__(_WORKER, KEEPING_HEAP)
        self._send(block)
        self._is_made = False

    def first_steps(self) -> int:
        number: int = self._ask("first_steps")
        return number

    def steps(self, count: int) -> None:
        self._ask("steps", count)

    def memory(self) -> StepMeasurement:
        found: StepMeasurement = self._ask("memory")
        return found

    def timed(self) -> tuple[float, float]:
        spent: tuple[float, float] = self._ask("timed")
        return spent

    def _ask(self, what: str, *given: Any) -> Any:
        if not self._is_made:
            self._answer()
            self._is_made = True
        self._send(packed((what, given)))
        return self._answer()

    def _send(self, block: bytes) -> None:
        try:
            self.tell(block)
        except OSError as error:
            raise self._dead() from error

    def _answer(self) -> Any:
        block = self.heard()
        if block is None:
            raise self._dead()
        answer = unpacked(block)
        if isinstance(answer, NeaptideError):
            raise answer
        if isinstance(answer, Failed):
            raise ProgramError(
                f"the program {self.name!r} failed in a process of its own",
                where=answer.where,
                why=answer.what,
                next_step="run the step by itself: it must run with the same factory in any process",
            )
        return answer

    def _dead(self) -> ProgramError:
        code, text = self.last_words()
        return ProgramError(
            f"the program {self.name!r} died in a process of its own",
            where=f"python -m {_WORKER}, {code}",
            why=text or "it wrote nothing to stderr",
            next_step="see whether memory suffices: each program has a model of its own",
        )


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
        return self._numbers.get(id(one)) if isinstance(one, (CapturedProgram, Graph)) else None

    def reducer_override(self, one: Any) -> Any:
        """How a read-only view of a dict is made again; for all else, what pickle does."""
        return (_read_only, (dict(one),)) if isinstance(one, MappingProxyType) else NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, block: io.BytesIO, programs: Sequence[CapturedProgram]) -> None:
        super().__init__(block)
        self._programs = programs

    def persistent_load(self, number: Any) -> CapturedProgram | Graph:
        kind, index = number
        program: CapturedProgram = self._programs[index]
        return program if kind == "program" else program.graph
