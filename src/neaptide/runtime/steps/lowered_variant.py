"""What runs for the calls of one kind: the programs of a capture, lowered when they are first needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from neaptide.copy_engines.waiting_state import WaitingState
from neaptide.frontends.guards.tensor_facts import Presence, fits
from neaptide.frontends.objects.batch_objects import leaves_of
from neaptide.frontends.programs.host_code import HostCode
from neaptide.frontends.state.step_slots import present_pattern
from neaptide.frontends.watch.first_writes import FirstWrites
from neaptide.lower.places import NO_PLACES
from neaptide.lower.torch_code import Watch, lower
from neaptide.ops import registry
from neaptide.runtime.arena.tensors_by_shape import Arenas, ShapePlaces
from neaptide.runtime.calls.binding import Binding, Decided
from neaptide.runtime.calls.executor import Executable
from neaptide.runtime.calls.state_copy import RestorePoint
from neaptide.runtime.shapes.plans import ShapeExecutable
from neaptide.runtime.shapes.point_executable import PointExecutable, PointProgram
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant


@dataclass(frozen=True)
class Runnable:
    """A lowered program tied to the user's objects.

    `saved` are positions of inputs, one on each storage that is copied first; `saved_names` are the names of all
    inputs on those storages.
    """

    index: int
    executable: Executable
    binding: Binding
    saved: tuple[int, ...]
    saved_names: frozenset[str]
    random_devices: tuple[str, ...]
    first_writes: FirstWrites
    host: HostCode | None

    def restore_point(self, inputs: list[Any]) -> RestorePoint:
        """Copies of what has to be put back when the program dies."""
        return RestorePoint([inputs[position] for position in self.saved], self.random_devices)

    def saves(self, written: tuple[str, ...]) -> bool:
        """Whether everything written so far can be put back."""
        return self.saved_names.issuperset(written)


class LoweredVariant:
    """The programs of one capture, lowered when they are first needed; they run in one block."""

    def __init__(self, planned: PlannedVariant, arenas: Arenas, waiting: WaitingState) -> None:
        self.planned = planned
        self._arenas = arenas
        self._waiting = waiting
        self._presence = Presence(planned.captured.state)
        self._chosen: int | None = None
        self._lowered: dict[tuple[int, bool], Runnable] = {}
        self._decided: dict[int, Decided] = {}
        self._is_above = False
        self._decides = any(p.decisions is not None for p in planned.captured.programs)

    def program_now(self, call: tuple[tuple[Any, ...], Mapping[str, Any]] | None = None) -> Runnable | None:
        """The program for the gradients and the optimizer state that exist now, and the branches of a call.

        Without a call, a program that may differ from the call's in branches. None for a shape that no way was found to
        keep within its own limit.
        """
        if self._decides and call is not None:
            chosen = self._choose(leaves_of((call[0], dict(call[1]))))
        else:
            if self._chosen is None or not self._presence.unchanged():
                self._chosen = self._choose(None)
                self._presence.arm()
            chosen = self._chosen
        self._is_above = chosen is not None and call is not None and self._excess(chosen, call) > 0
        return None if chosen is None or self._is_above else self.runnable(chosen)

    def _excess(self, index: int, call: tuple[tuple[Any, ...], Mapping[str, Any]]) -> int:
        """Bytes by which the shape of a call stays above its own limit; 0 where one limit holds for all shapes."""
        points, sizes = self.planned.graphs[index].points, self.planned.captured.sizes
        if points is None or points.limit is None or sizes is None:
            return 0
        executable = self.runnable(index).executable
        assert isinstance(executable, PointExecutable)
        return executable.excess(sizes.binding(leaves_of((call[0], dict(call[1])))))

    def _choose(self, leaves: list[Any] | None) -> int | None:
        captured = self.planned.captured
        now = present_pattern(captured.state)
        for index, program in enumerate(captured.programs):
            if not program.accepts(*now.names()) or not fits(
                program.entry, now, reads_gradients=not program.ignores_gradients
            ):
                continue
            if leaves is None or program.decisions is None:
                return index
            if index not in self._decided:
                self._decided[index] = Decided(program.decisions, captured.state)
            if self._decided[index].hold(leaves):
                return index
        return None

    def why_none(self) -> str:
        """Why no program is for the call, in words."""
        if self._is_above:
            return "no way was found to keep its shape within the limit by the program for all shapes"
        if self.program_now() is None:
            return "other gradients, optimizer state or flags exist than in any step planned"
        return "step counts or hyper-parameters lead to another branch than in any step planned"

    def runnable(self, index: int, *, is_watched: bool = False) -> Runnable:
        """One of the programs, with copies of its gradients on the way where it is watched."""
        key = index, is_watched
        if key not in self._lowered:
            watches = _watches(self.planned.graphs[index]) if is_watched else ()
            self._lowered[key] = self._lower(index, watches)
        return self._lowered[key]

    def forget(self) -> None:
        """Keep no tensor in an arena: what has them in its text is lowered anew when it is next needed."""
        for key, runnable in list(self._lowered.items()):
            if isinstance(runnable.executable, PointExecutable):
                runnable.executable.let_go()
            else:
                del self._lowered[key]

    def _lower(self, index: int, watches: tuple[Watch, ...]) -> Runnable:
        planned = self.planned.graphs[index]
        graph, host = planned.graph, self.planned.captured.host
        on_storage = {
            s: [i for i, v in enumerate(graph.inputs) if graph.values[v].storage == s] for s in planned.saved
        }
        drawn = {node.effects.rng for node in graph.nodes if node.effects.rng is not None}
        return Runnable(
            index,
            self._executable(index, watches),
            Binding(
                planned.program,
                graph,
                self.planned.captured.state,
                left=self.planned.captured.left,
                last_writes=self.planned.captured.last_writes,
            ),
            tuple(positions[0] for positions in on_storage.values()),
            frozenset(graph.values[graph.inputs[i]].name for found in on_storage.values() for i in found),
            tuple(sorted({device.split(":")[0] for device in drawn})),
            self.planned.captured.first_writes,
            host,
        )

    def _executable(self, index: int, watches: tuple[Watch, ...]) -> Executable:
        planned = self.planned.graphs[index]
        graph, arena = planned.graph, planned.arena
        name = graph.name or "step"
        if planned.by_shape is not None:
            return ShapeExecutable(graph, planned.by_shape, name=name, watches=watches)
        if planned.points is not None:
            beside = None
            if planned.in_parts is not None:
                within = _watches(planned.in_parts) if watches else ()
                beside = self._with_points(index, planned.in_parts, f"{name} (in parts)", within)
            return PointExecutable(self._with_points(index, planned, name, watches), beside)
        places = NO_PLACES if arena is None else arena.places
        slow = replace(self.planned.slow, capacity_bytes=planned.host_bytes)
        lowered = lower(
            graph,
            planned.schedule,
            registry(),
            watches=watches,
            places=places,
            slow=slow,
            waiting=self._waiting,
        )
        tensors: Mapping[str, torch.Tensor] = {}
        if arena is not None:
            nbytes = arena.report.arena_bytes
            block = self._arenas.reserve(arena.device, nbytes, arena.alignment, lasting=index == 0)
            tensors = block.tensors(lowered)
        return Executable(lowered, name=name, places=tensors)

    def _with_points(
        self, index: int, planned: PlannedGraph, name: str, watches: tuple[Watch, ...]
    ) -> PointProgram:
        points = planned.points
        assert points is not None
        places = None
        if points.arena is not None:
            places = ShapePlaces(points.arena, self._arenas, lasting=index == 0)
        return PointProgram(points, name, watches=watches, places=places, slow=self.planned.slow)


def _watches(planned: PlannedGraph) -> tuple[Watch, ...]:
    return tuple(Watch(seen.name, seen.value, seen.version) for seen in planned.observations)
