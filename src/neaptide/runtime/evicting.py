"""Runs a program node by node under a budget in bytes; a policy decides on the way what is evicted and made again.

Dynamic tensor rematerialization (Kirisame et al., ICLR 2021) with what a captured program makes known: who reads what,
what is overwritten when, and what is needed no longer. The decisions are those of `neaptide.planner.eviction`, which
the strategies of the same names simulate: with the same bytes, seconds and order of first executions they are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from neaptide.analysis.liveness import with_frees
from neaptide.errors import InfeasibleBudget
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule
from neaptide.lower.node_calls import RUNNER, NodeCalls, NodeFunction, node_calls
from neaptide.lower.program import Watch
from neaptide.lower.random_states import DrawnAgain, random_state
from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.eviction.policy import heuristic
from neaptide.planner.eviction.run import EvictionRun, EvictionTotals, Observed
from neaptide.planner.eviction.simulate import SimulationStopped, simulate
from neaptide.planner.eviction.units import eviction_units
from neaptide.runtime.executor import Executable
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem
from neaptide.units import format_bytes


@dataclass(frozen=True, slots=True)
class EvictionOptions:
    """How a step is run under eviction.

    Attributes:
        heuristic: what is evicted first, a name of `neaptide.planner.eviction.policy.HEURISTICS`, with underscores or
            hyphens; underscores are kept.
        timed: take the seconds of operations as they run, rather than those known beforehand. The decisions then
            differ from run to run, and the budget is not known to be kept before it is tried.

    Raises:
        UsageError: no heuristic of that name.
    """

    heuristic: str = "dtr"
    timed: bool = False

    def __post_init__(self) -> None:
        # Frozen, so this is the only way in; programs that compare names then see one spelling.
        object.__setattr__(self, "heuristic", heuristic(self.heuristic).name)


def eviction_options(eviction: str | EvictionOptions | None) -> EvictionOptions | None:
    """How to evict; None: not at all.

    Raises:
        UsageError: no such heuristic.
    """
    if eviction is None:
        return None
    return eviction if isinstance(eviction, EvictionOptions) else EvictionOptions(eviction)


@dataclass(frozen=True, slots=True)
class Eviction:
    """What the run of one program is decided with.

    Attributes:
        problem: the program as integers, with the bytes and seconds that are known beforehand.
        order: of first executions.
        budget_bytes: highest peak with workspace, what the caller owns included.
        options: how.
    """

    problem: StepProblem
    order: tuple[int, ...]
    budget_bytes: int
    options: EvictionOptions


def check_eviction(eviction: Eviction, name: str, time_s: float | None = None) -> None:
    """Run the policy on paper, with the bytes and seconds that are known beforehand. O(executions x storages).

    Args:
        eviction: what is decided with.
        name: of the step, for messages.
        time_s: how long that may take; None: as long as it takes.

    Raises:
        InfeasibleBudget: nothing is left to evict at some step, or that was not found out in time.
    """
    problem, options = eviction.problem, eviction.options
    chosen = heuristic(options.heuristic)
    guard = LimitGuard(Limits(time_s))
    try:
        run = simulate(
            problem, eviction.order, chosen, eviction.budget_bytes, lambda: guard.exhausted() is None
        )
    except SimulationStopped as error:
        raise InfeasibleBudget(
            f"whether evicting by {options.heuristic} keeps {name} within {format_bytes(eviction.budget_bytes)} was not "
            "found out within the time limit",
            smallest_peak_bytes=Evaluator(problem, eviction.order).peak,
            lower_bound_bytes=problem.lower_bound_bytes,
            why="a run that takes long on paper makes much again; the smallest peak known is that without eviction",
            next_step="allow more bytes or a longer time_limit_s, or plan the step",
        ) from error
    totals = run.totals
    if totals.peak_bytes > eviction.budget_bytes:
        gave_up = f"it gave up after {totals.executions} executions of {problem.node_count} operations"
        raise InfeasibleBudget(
            f"evicting by {options.heuristic} does not keep {name} within {format_bytes(eviction.budget_bytes)}; "
            f"run with eviction, it comes to a peak of {format_bytes(totals.peak_bytes)}",
            smallest_peak_bytes=totals.peak_bytes,
            lower_bound_bytes=problem.lower_bound_bytes,
            why=gave_up if totals.gave_up else "nothing that may be made again was left to evict",
            next_step="allow more, or plan the step: a plan knows what comes",
        )


class EvictingExecutable(Executable):
    """A program whose order is decided while it runs; called like any other.

    Attributes:
        totals: what happened in the last run that came to its end; None before there is one.

    Args:
        graph: without loops.
        registry: how an impure op is repeated.
        eviction: budget and policy; its problem is that of the graph.
        name: for messages.
        watches: values to copy on the way.

    Raises:
        LoweringError: as `neaptide.lower.node_calls.node_calls`.
    """

    def __init__(
        self,
        graph: Graph,
        registry: OpRegistry,
        eviction: Eviction,
        *,
        name: str,
        watches: Sequence[Watch] = (),
    ) -> None:
        calls = node_calls(graph, registry, watches)
        schedule = Schedule.from_nodes(graph, eviction.order)
        names = {**calls.program.names, RUNNER: self._run_nodes}
        program = replace(calls.program, schedule=with_frees(graph, schedule), names=names)
        super().__init__(program, name=name)
        self.totals: EvictionTotals | None = None
        self._graph = graph
        self._eviction = eviction
        self._units = eviction_units(eviction.problem, eviction.order)
        self._functions = _Functions.of(calls, self._function.__globals__)
        self._begun = -1
        self._on_storage: dict[int, list[int]] = {}
        for value, storage in enumerate(eviction.problem.value_storage):
            self._on_storage.setdefault(storage, []).append(value)

    def written(self, step: int | None = None) -> tuple[str, ...]:
        """Names of the graph inputs that have been written; the first executions that have begun count, not lines."""
        return super().written(None if step is None else self._begun)

    def _run_nodes(self, args: list[Any], watched: dict[str, torch.Tensor] | None = None) -> tuple[Any, ...]:
        values = dict(zip(self._graph.inputs, args, strict=True))
        args.clear()
        self._begun = -1
        eviction = self._eviction
        machine = _TorchMachine(
            self._graph,
            eviction.problem,
            self._functions,
            self._on_storage,
            values,
            watched,
            self._begin,
            is_timed=eviction.options.timed,
        )
        machine.copy_watched(-1)
        chosen = heuristic(eviction.options.heuristic)
        self.totals = EvictionRun(self._units, chosen, eviction.budget_bytes, machine).run()
        return tuple(values[v] for v in self._graph.outputs)

    def _begin(self, node: int) -> None:
        self._begun = self._units.position_of[node]


@dataclass(frozen=True, slots=True)
class _Functions:
    """Callables of the nodes, with the values that they take."""

    first: tuple[tuple[Callable[..., tuple[Any, ...]], tuple[int, ...]], ...]
    again: tuple[tuple[Callable[..., tuple[Any, ...]], tuple[int, ...]], ...]
    copies: dict[int, tuple[Callable[..., None], tuple[int, ...]]]

    @staticmethod
    def of(calls: NodeCalls, scope: dict[str, Any]) -> _Functions:
        def found(function: NodeFunction) -> tuple[Any, tuple[int, ...]]:
            return scope[function.name], function.arguments

        return _Functions(
            tuple(map(found, calls.first)),
            tuple(map(found, calls.again)),
            {node: found(function) for node, function in calls.watches.items()},
        )


@dataclass(slots=True, eq=False)
class _TorchMachine:
    """Runs nodes on real tensors; `values` holds them, and nothing else does."""

    graph: Graph
    problem: StepProblem
    functions: _Functions
    on_storage: Mapping[int, Sequence[int]]
    values: dict[int, Any]
    watched: dict[str, torch.Tensor] | None
    begin: Callable[[int], None]
    is_timed: bool
    states: dict[int, bytes] = field(default_factory=dict)

    def execute(self, node: int, *, again: bool) -> Observed:
        """Run a node on the tensors that are there."""
        if not again:
            self.begin(node)
        function, arguments = (self.functions.again if again else self.functions.first)[node]
        values = self.values
        began = self._now()
        stream = self.graph.nodes[node].effects.rng
        if stream is None:
            outputs = function(*[values[v] for v in arguments])
        elif again:
            with DrawnAgain(stream, self.states[node]):
                outputs = function(*[values[v] for v in arguments])
        else:
            if not self.problem.refusals[node]:
                self.states[node] = random_state(stream)
            outputs = function(*[values[v] for v in arguments])
        seconds = self._now() - began
        values.update(zip(self.graph.nodes[node].outputs, outputs, strict=True))
        if not again:
            self.copy_watched(node)
        if not self.is_timed:
            problem = self.problem
            seconds = problem.repeat_seconds[node] if again else problem.seconds[node]
        return Observed([self._nbytes(s) for s in self.problem.created[node]], seconds)

    def drop(self, storage: int) -> None:
        """Let go of every tensor on a storage."""
        for value in self.on_storage[storage]:
            self.values.pop(value, None)

    def copy_watched(self, node: int) -> None:
        """Copy what is watched directly behind a node; -1: at the beginning."""
        if node in self.functions.copies:
            function, arguments = self.functions.copies[node]
            function(self.watched, *[self.values[v] for v in arguments])

    def _nbytes(self, storage: int) -> int:
        """Bytes of a storage as it is; none where they do not count, as on another device."""
        if not self.problem.storage_bytes[storage]:
            return 0
        value = next(v for v in self.on_storage[storage] if v in self.values)
        return int(self.values[value].untyped_storage().nbytes())

    def _now(self) -> float:
        if not self.is_timed:
            return 0.0
        if self.problem.device.startswith("cuda"):
            torch.cuda.synchronize()
        return time.perf_counter()
