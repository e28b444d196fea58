"""Runs a generated program, and says what happened when it dies: where, in whose line, and what was already written."""

from __future__ import annotations

import contextlib
import itertools
import linecache
import sys
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from neaptide.copy_engines.host_pool import HostPool
from neaptide.copy_engines.waiting_state import WaitingState
from neaptide.errors import UsageError
from neaptide.ir.nodes import Node
from neaptide.ir.schedule import StepKind
from neaptide.lower.dims import DimReader
from neaptide.lower.program import Program
from neaptide.runtime._torch_private import direct_call

_NUMBERS = itertools.count(1)

Input = torch.Tensor | float | int


@dataclass(frozen=True, slots=True)
class Interruption:
    """A run that died after it had begun to write what the caller owns.

    Attributes:
        written: names of the graph inputs that had been written, in the order of the graph's inputs. What the node
            itself writes is among them: an operation that fails halfway may have written a part.
    """

    node: Node | None  # at which it died; None when it died between two operations
    written: tuple[str, ...]


class Compiled:
    """A program, ready to be called. Its lines show up in tracebacks.

    Attributes:
        file_name: pseudo file under which Python knows the source.
    """

    def __init__(self, program: Program, name: str, places: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.program, self.name = program, name
        self.file_name = f"<neaptide {name} {next(_NUMBERS)}>"
        source = program.source
        # Without a modification time the entry is never checked against the disk.
        lines = source.splitlines(keepends=True)
        linecache.cache[self.file_name] = (len(source), None, lines, self.file_name)
        weakref.finalize(self, linecache.cache.pop, self.file_name, None)
        self.scope: dict[str, Any] = {key: direct_call(thing) for key, thing in program.names.items()}
        self.scope.update(places)
        exec(compile(source, self.file_name, "exec"), self.scope)  # noqa: S102
        self.function: Callable[..., tuple[Any, ...]] = self.scope["program"]
        self.pools = [thing for thing in program.names.values() if isinstance(thing, HostPool)]
        self.waiting = [thing for thing in program.names.values() if isinstance(thing, WaitingState)]
        self.device_types = sorted({s.device.split(":")[0] for s in program.graph.storages})

    def written(self, step: int | None = None) -> tuple[str, ...]:
        """Names of the graph inputs that executions up to one write, by default all, in the order of the graph's inputs."""
        graph = self.program.graph
        executions = self.program.schedule.node_steps()
        storages = {
            access.storage
            for execution in executions[: len(executions) if step is None else step + 1]
            if execution.kind is not StepKind.RECOMPUTE
            for access in graph.nodes[execution.target].effects.writes
        }
        inputs = (graph.values[v] for v in dict.fromkeys(graph.inputs))
        return tuple(value.name for value in inputs if value.storage in storages)

    def bring_back(self) -> tuple[str, ...]:
        """Have the caller's storages that wait on the host on the device again; names of those that are lost."""
        lost = [name for pool in self.pools for name in pool.bring_back()]
        lost += [name for holder in self.waiting for name in holder.bring_back()]
        return tuple(dict.fromkeys(lost))

    def note(self, node: Node | None, line: int) -> str:
        """Where a run died, for the error."""
        rows = [f"while neaptide ran {self.name}"]
        if node is not None:
            source = node.source
            rows[0] += f", at {node.op}"
            if source.location:
                rows.append(f"  where: {source.location}{'  ' + source.code.strip() if source.code else ''}")
            if source.module or source.phase:
                rows.append(
                    f"  module: {' '.join(filter(None, (source.module, f'({source.phase})' * bool(source.phase))))}"
                )
        text = self.program.source.splitlines()[line - 1].strip()
        rows.append(f"  program: line {line}: {text}")
        return "\n".join(rows)


class Executable:
    """What runs for a graph: the program that `prepare` gives for the shapes of a call, for most graphs always the same.

    Attributes:
        interruption: what the last run left half done; None when it came to its end, or died before its first write
            to anything that the caller owns.
    """

    def __init__(
        self, program: Program, *, name: str, places: Mapping[str, torch.Tensor] = MappingProxyType({})
    ) -> None:
        self._start(Compiled(program, name, places))

    def _start(self, first: Compiled) -> None:
        self.name = first.name
        self.current = first
        self.interruption: Interruption | None = None
        self._dims = DimReader(first.program.graph)

    def prepare(self, _shape: Mapping[str, int]) -> Compiled:
        """The program for a shape."""
        return self.current

    def bound(self, shape: Mapping[str, int]) -> Mapping[str, int]:
        """Values of all dims that the program takes, of which the arguments tell `shape`."""
        return shape

    @property
    def program(self) -> Program:
        """That of the last call, or of the first one to come."""
        return self.current.program

    @property
    def keeps_state(self) -> bool:
        """Whether it has state on the host when it begins, or when it ends."""
        return bool(self.current.waiting)

    def written(self, step: int | None = None) -> tuple[str, ...]:
        """As `Compiled.written`, of the program of the last call."""
        return self.current.written(step)

    def run(self, inputs: list[Input], watched: dict[str, torch.Tensor] | None = None) -> tuple[Any, ...]:
        """Run once; gives the graph outputs.

        Nothing is recorded for autograd: the inputs are handed on as detached aliases, which share their bytes.

        Args:
            inputs: one for each graph input. The list is emptied, so that it keeps nothing alive.
            watched: filled with the copies of a program that was lowered with watches.
        """
        self.interruption = None
        expected = len(self.program.graph.inputs)
        if len(inputs) != expected:
            raise UsageError(f"{self.name} takes {expected} inputs, not {len(inputs)}")
        shape = self._dims.read(inputs)
        now = self.current = self.prepare(shape)
        if now.program.watches and watched is None:
            raise UsageError(f"{self.name} copies values on the way, but was given no dict to put them in")
        keywords = now.program.dims
        binding = self.bound(shape) if keywords else shape
        sizes = {keyword: binding[dim] for dim, keyword in keywords.items()}
        outer = sys.exc_info()[1]
        args = [item.detach() if isinstance(item, torch.Tensor) else item for item in inputs]
        inputs.clear()
        is_done = False
        try:
            # Not under no_grad: recurrent kernels return no workspace for their backward there.
            with torch.enable_grad(), _no_autocast(now.device_types):
                taken = (args, watched) if now.program.watches else (args,)
                outputs = now.function(*taken, **sizes)
                is_done = True
            return outputs  # noqa: TRY300 - an interrupt between the last operation and here counts
        except BaseException as error:
            args.clear()
            lost = now.bring_back()
            self._explain(error, outer, is_done=is_done)
            if lost:
                self._lose(lost, error)
            raise

    # -- when it dies

    def _lose(self, lost: tuple[str, ...], error: BaseException) -> None:
        """What could not be brought back holds anything, as what a step has written in part."""
        now = self.interruption
        written = () if now is None else now.written
        names = (*written, *(name for name in lost if name not in written))
        self.interruption = Interruption(None if now is None else now.node, names)
        error.add_note(f"  lost: the bytes of {', '.join(lost)} could not be copied back from the host")

    def _explain(self, error: BaseException, outer: BaseException | None, *, is_done: bool) -> None:
        """Note where it happened, work out what had been written, and let go of every tensor."""
        lines = [
            line
            for frame, line in traceback.walk_tb(error.__traceback__)
            if frame.f_code.co_filename == self.current.file_name
        ]
        if not lines:  # before the first line, or after the last
            if is_done and (everything := self.written()):
                self.interruption = Interruption(None, everything)
            return
        node = self.program.node_at(lines[-1])
        reached = max((s for s in self.program.line_steps[: lines[0]] if s is not None), default=-1)
        written = self.written(reached)
        if written:
            self.interruption = Interruption(node, written)
        error.add_note(self.current.note(node, lines[-1]))
        _clear_frames(error, outer)


@contextlib.contextmanager
def _no_autocast(kinds: Iterable[str]) -> Iterator[None]:
    """The casts of the captured program are operations of the graph; a second time would be once too often."""
    with contextlib.ExitStack() as stack:
        for kind in kinds:
            if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _clear_frames(error: BaseException, outer: BaseException | None) -> None:
    """Empty the frames that an error went through, so that it keeps no tensor alive; text and line numbers stay.

    `outer` is what the caller was handling already: its frames are not ours.
    """
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        here = pending.pop()
        if here is None or here is outer or id(here) in seen:
            continue
        seen.add(id(here))
        traceback.clear_frames(here.__traceback__)
        pending += [here.__cause__, here.__context__]
