"""Runs a generated program, and says what happened when it dies: where, in whose line, and what was already written."""

from __future__ import annotations

import contextlib
import itertools
import linecache
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from neaptide.errors import UsageError
from neaptide.ir.nodes import Node
from neaptide.ir.schedule import StepKind
from neaptide.lower.dims import DimReader
from neaptide.lower.program import Program
from neaptide.movers.host_pool import HostPool
from neaptide.movers.waiting_state import WaitingState
from neaptide.runtime._torch_private import direct_call

_NUMBERS = itertools.count(1)

Input = torch.Tensor | float | int


@dataclass(frozen=True, slots=True)
class Interruption:
    """A run that died after it had begun to write what the caller owns.

    Attributes:
        node: at which it died; None when it died between two operations.
        written: names of the graph inputs that had been written, in the order of the graph's inputs. What the node
            itself writes is among them: an operation that fails halfway may have written a part.
    """

    node: Node | None
    written: tuple[str, ...]


class Executable:
    """A program, compiled and ready to run. Its lines show up in tracebacks.

    Attributes:
        interruption: what the last run left half done; None when it came to its end, or died before its first write
            to anything that the caller owns.
    """

    def __init__(
        self, program: Program, *, name: str, places: Mapping[str, torch.Tensor] = MappingProxyType({})
    ) -> None:
        self.program = program
        self.name = name
        self.file_name = f"<neaptide {name} {next(_NUMBERS)}>"
        self.interruption: Interruption | None = None
        source = program.source
        # Without a modification time the entry is never checked against the disk.
        linecache.cache[self.file_name] = (
            len(source),
            None,
            source.splitlines(keepends=True),
            self.file_name,
        )
        weakref.finalize(self, linecache.cache.pop, self.file_name, None)
        scope: dict[str, Any] = {key: direct_call(thing) for key, thing in program.names.items()}
        scope.update((key, places[key]) for key in program.places)
        exec(compile(source, self.file_name, "exec"), scope)  # noqa: S102
        self._function: Callable[..., tuple[Any, ...]] = scope["program"]
        self._inputs = len(program.graph.inputs)
        self._dims = DimReader(program.graph)
        self._pools = [thing for thing in program.names.values() if isinstance(thing, HostPool)]
        self._waiting = [thing for thing in program.names.values() if isinstance(thing, WaitingState)]
        self._device_types = sorted({s.device.split(":")[0] for s in program.graph.storages})

    @property
    def keeps_state(self) -> bool:
        """Whether it has state on the host when it begins, or when it ends."""
        return bool(self._waiting)

    def run(self, inputs: list[Input], watched: dict[str, torch.Tensor] | None = None) -> tuple[Any, ...]:
        """Run once; gives the graph outputs.

        Nothing is recorded for autograd: the inputs are handed on as detached aliases, which share their bytes.

        Args:
            inputs: one for each graph input. The list is emptied, so that it keeps nothing alive.
        """
        self._check(inputs, watched)
        sizes = self._sizes(inputs)
        self.interruption = None
        outer = sys.exc_info()[1]
        args = [item.detach() if isinstance(item, torch.Tensor) else item for item in inputs]
        inputs.clear()
        is_done = False
        try:
            # Not under no_grad: recurrent kernels return no workspace for their backward there.
            with torch.enable_grad(), self._no_autocast():
                taken = (args, watched) if self.program.watches else (args,)
                outputs = self._function(*taken, **sizes)
                is_done = True
            return outputs  # noqa: TRY300 - an interrupt between the last operation and here counts
        except BaseException as error:
            args.clear()
            lost = self._bring_back()
            self._explain(error, outer, is_done=is_done)
            if lost:
                self._lose(lost, error)
            raise

    def written(self, step: int | None = None) -> tuple[str, ...]:
        """Names of the graph inputs that executions up to one write, in the order of the graph's inputs.

        Args:
            step: position of the execution in the schedule; None for the last.
        """
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

    def _check(self, inputs: list[Input], watched: dict[str, torch.Tensor] | None) -> None:
        if len(inputs) != self._inputs:
            raise UsageError(f"{self.name} takes {self._inputs} inputs, not {len(inputs)}")
        if self.program.watches and watched is None:
            raise UsageError(f"{self.name} copies values on the way, but was given no dict to put them in")

    def _sizes(self, inputs: list[Input]) -> dict[str, int]:
        """What the program takes for the dims of its graph, by keyword."""
        keywords = self.program.dims
        if not keywords:
            return {}
        binding = self._binding(inputs)
        return {keyword: binding[dim] for dim, keyword in keywords.items()}

    def _binding(self, inputs: list[Input]) -> Mapping[str, int]:
        """Values of the dims of the graph at a call."""
        return self._dims.read(inputs)

    @contextlib.contextmanager
    def _no_autocast(self) -> Iterator[None]:
        """The casts of the captured program are operations of the graph; a second time would be once too often."""
        with contextlib.ExitStack() as stack:
            for kind in self._device_types:
                if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, enabled=False))
            yield

    # -- when it dies

    def _bring_back(self) -> tuple[str, ...]:
        """Have the caller's storages that wait on the host on the device again; names of those that are lost."""
        lost = [name for pool in self._pools for name in pool.bring_back()]
        lost += [name for holder in self._waiting for name in holder.bring_back()]
        return tuple(dict.fromkeys(lost))

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
            if frame.f_code.co_filename == self.file_name
        ]
        if not lines:  # before the first line, or behind the last
            if is_done and (everything := self.written()):
                self.interruption = Interruption(None, everything)
            return
        node = self.program.node_at(lines[-1])
        reached = max((s for s in self.program.line_steps[: lines[0]] if s is not None), default=-1)
        written = self.written(reached)
        if written:
            self.interruption = Interruption(node, written)
        error.add_note(self._note(node, lines[-1]))
        _clear_frames(error, outer)

    def _note(self, node: Node | None, line: int) -> str:
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
