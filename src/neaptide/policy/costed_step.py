"""A captured step and what its operations cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TypedDict, Unpack

import torch

from neaptide.analysis.axes.whole_graph import axes_in_words
from neaptide.analysis.loops import NO_BODIES, Bodies
from neaptide.analysis.sizes import usual_device
from neaptide.budget import Budget
from neaptide.copy_engines.copy_engine import DEFAULT_SLOW_MEMORY, SlowMemory
from neaptide.cost.calibrate import this_machine
from neaptide.cost.cards.cublas import library_blocks
from neaptide.cost.cards.cuda_card import card
from neaptide.cost.devices import Device
from neaptide.cost.measured import MeasuredCost, surprises
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.cost.timing.call_clock import CallClock, ClockNormalisation
from neaptide.frontends.guards.fact_words import user_names
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.frontends.state.step_slots import argument_name
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry, Trait
from neaptide.layout.caching_allocator import AllocatorBytes
from neaptide.ops import registry
from neaptide.planner.graphs.on_operands import Operands
from neaptide.planner.graphs.own_schedule import as_written
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.prices import Prices
from neaptide.planner.pricing import Pricing
from neaptide.planner.variants.choices import Choices
from neaptide.planner.variants.estimate import PartCosts
from neaptide.policy.card_bytes import allocator_peaks
from neaptide.runtime.steps.planned_graph import PlannedGraph
from neaptide.schedule.problem import StepProblem
from neaptide.schedule.timeline import Links
from neaptide.transform.rewrite import Rewrite
from neaptide.units import format_bytes

Progress = Callable[[str], None]


class CostOptions(TypedDict, total=False):
    """What the costs of a step are."""

    device: str | None  # name of a preset to plan for; None for this machine
    # Operations may be run alone to learn their time, workspace and true sizes; never for a preset or without bytes.
    run_operations: bool
    progress: Progress | None
    bits_may_vary: bool  # operations whose bits differ from run to run may be recomputed
    refresh: bool  # measure this machine and the operations again, whatever the cache has
    slow: SlowMemory  # where storages wait that a plan moves, when it runs on this machine


class CostedStep:
    """A captured step and what its operations cost."""

    def __init__(self, captured: CapturedStep, **how: Unpack[CostOptions]) -> None:
        device, refresh = how.get("device"), how.get("refresh", False)
        self.captured, self.how = captured, how
        self.registry = registry().with_bits(may_vary=how.get("bits_may_vary", False))
        self.say = how.get("progress") or (lambda _text: None)
        self.slow = how.get("slow", DEFAULT_SLOW_MEMORY)
        where = torch.device(usual_device(captured.steady.graph))
        self.device: Device = self._here(where, refresh=refresh) if device is None else get_device(device)
        self.is_measured = how.get("run_operations", True) and device is None and _has_bytes(captured)
        self._prepared: dict[int, Graph] = {}  # kept: else another graph could get its id
        self._rewritten: dict[tuple[int, tuple[str | Rewrite, ...]], PlannedGraph] = {}
        # One for all programs: they have most calls in common, and with `refresh` each is run once.
        self._cost: MeasuredCost | EstimatedCost = (
            MeasuredCost(self.registry, refresh=refresh)
            if self.is_measured
            else EstimatedCost(self.device, self.registry)
        )
        self.quick_pricing = Pricing(self._cost, self.registry, links=Links.of(self.device))
        self.part_costs = PartCosts.on(self.device)
        self._choices: dict[int, Choices] = {}  # by graph, which their objection keeps
        self._operands: dict[int, Operands | None] = {}  # by captured graph, rewritten as it is asked for
        self._problems: dict[int, StepProblem] = {}
        self._written: dict[int, PlannedSequence] = {}
        self.surprises: dict[str, None] = {}
        # What cuBLAS keeps of the card; the blocks of a step that runs on one.
        self.library_blocks: tuple[int, ...] = ()
        self.is_on_card = where.type == "cuda" and device is None
        if self.is_on_card and _has_products(captured, self.registry):
            self.library_blocks = library_blocks(torch.cuda.get_device_capability(where)[0])

    @property
    def library_bytes(self) -> int:
        """Bytes that libraries keep of the step's card; 0 on the CPU and for a preset."""
        return sum(self.library_blocks)

    @cached_property
    def bytes_beside(self) -> int:
        """Bytes of the step's card that are allocated beside those that it asks for, in program order: by libraries, and in blocks.

        0 on the CPU and for a preset.
        """
        blocks = self.blocks_as_written
        return (
            self.library_bytes if blocks is None else self.library_bytes + blocks.allocated - blocks.requested
        )

    @cached_property
    def blocks_as_written(self) -> AllocatorBytes | None:
        """What the allocator of the step's card makes of program order, libraries included; None where that is not known."""
        if not self.is_on_card or self.captured.steady.graph.dims:
            return None
        written = PlannedGraph.captured(self.captured.steady)
        assumed = self.prices(written.graph).assumed
        return allocator_peaks(written.graph, written.schedule, assumed, self.library_blocks)

    @property
    def told_of_card(self) -> tuple[str, ...]:
        """Sentences for a report: bytes of the card beside those that the step asks for."""
        found = []
        if self.library_blocks:
            found.append(f"cuBLAS keeps {format_bytes(self.library_bytes)} of the card; budgets count them")
        if (blocks := self.blocks_as_written) is not None:
            found.append(
                f"in program order the card's allocator hands out {format_bytes(blocks.allocated)} in blocks and "
                f"reserves {format_bytes(blocks.reserved)}, cuBLAS's included"
            )
        return tuple(found)

    def on_card(self, budget: Budget) -> Budget:
        """A budget that counts `bytes_beside`, where nothing larger outside of the step is counted."""
        return replace(budget, outside_bytes=max(budget.outside_bytes, self.bytes_beside))

    def _here(self, where: torch.device, *, refresh: bool) -> Device:
        """What a step runs on: its card, or this machine, whose storages wait on the disk."""
        if where.type == "cuda":
            return card(where, refresh=refresh)
        return this_machine(refresh=refresh).with_disk(self.slow.bytes_per_s)

    def pricing(self, graph: Graph) -> Pricing:
        """What prices a captured graph, or one made of it; its operations are run here, the first time."""
        if id(graph) not in self._prepared:
            if isinstance(self._cost, MeasuredCost):
                self.say(f"timing the operations of {graph.name or 'the step'}")
                self._cost.prepare(graph)
            self.surprises.update(dict.fromkeys(surprises(graph, self._cost)))
            self._prepared[id(graph)] = graph
        return self.quick_pricing

    def choices(self, planned: PlannedGraph) -> Choices:
        """What may run in parts in one of the programs; one for all searches."""
        return self._choices.setdefault(id(planned.graph), Choices(self.registry, planned.objection))

    def prices(self, graph: Graph | None = None, bodies: Bodies = NO_BODIES) -> Prices:
        """What is known of the time and bytes of a captured graph, or one made of it; by default the usual step's."""
        priced = self.captured.steady.graph if graph is None else graph
        return self.pricing(priced).prices(priced, bodies)

    def problem(self, index: int = 0) -> StepProblem:
        """One of the captured programs as integers."""
        if index not in self._problems:
            graph = self.captured.programs[index].graph
            self._problems[index] = self.pricing(graph).problem(graph).named(self.user_names(index))
        return self._problems[index]

    def user_names(self, index: int = 0, rewritten: Graph | None = None) -> dict[int, str]:
        """What the user calls the storages of one of the programs that the caller owns, by id of its rewritten graph."""
        program = self.captured.programs[index]
        graph = program.graph if rewritten is None else rewritten
        batch = user_names(self.captured.signature.batch[0][1])
        found: dict[int, str] = {}
        for value, slot in zip(graph.inputs, program.inputs, strict=True):
            storage = graph.values[value].storage
            if storage is not None:
                name = batch[argument_name(slot.key[1])] if slot.role == "batch" else slot.name
                found.setdefault(storage, name)
        return found

    @property
    def captured_on(self) -> str:
        """Kind of the device whose kernels the step was captured with, such as `cpu`."""
        return self.problem().device.partition(":")[0]

    @property
    def clock(self) -> CallClock | None:
        """What tells the times of operations at one speed; None where they are estimated, or do not run on the processor."""
        return (
            self._cost.clock() if isinstance(self._cost, MeasuredCost) and self.captured_on == "cpu" else None
        )

    def at_kept_clock(self, budget: Budget) -> tuple[Budget, float]:
        """A budget whose limit in seconds is one at the speed that costs are kept at, and how much slower it is now.

        A limit that is no number of seconds is as it was, and the speed of now is not looked at.
        """
        longest = budget.seconds
        clock = None if longest is None else self.clock
        if longest is None or clock is None:
            return budget, 1.0
        factor = ClockNormalisation(clock.reference_s, clock.usual_reference_s()).factor
        return replace(budget, latency=longest / factor), factor

    def time_again(self, *, are_too_long: bool) -> float | None:
        """Time the dearest operations of the usual step again, for plans that are made from now on in other steps.

        `are_too_long`: program order took less time than predicted; else it took more. Gives seconds of program order by what
        they take now; None where operations do not run here.
        """
        if not isinstance(self._cost, MeasuredCost):
            return None
        graph = self.captured.steady.graph
        self.say("program order took another time than predicted: timing the dearest operations again")
        self._cost.time_again(graph, are_too_long=are_too_long)
        return sum(self._cost.seconds(graph, node) for node in graph.nodes)

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Axes of the usual step, in words."""
        return axes_in_words(self.captured.steady.graph, self.registry)

    def as_written(self, index: int = 0) -> PlannedSequence:
        """One of the programs as eager runs it: in program order, with the user's own activation checkpointing.

        Where that is higher than without (it can be, at another step), it is the program without.
        """
        if index not in self._written:
            self._written[index] = self.own(PlannedGraph.captured(self.captured.programs[index]))
        return self._written[index]

    def own(self, planned: PlannedGraph) -> PlannedSequence:
        """A graph with the user's own activation checkpointing."""
        return as_written(
            planned.graph,
            self.pricing(planned.graph).problem(planned.graph),
            self.registry,
            planned.checkpoints,
        )


def _has_products(captured: CapturedStep, known: OpRegistry) -> bool:
    """Whether any operation of a step multiplies matrices."""
    ops = {node.op for program in captured.programs for node in program.graph.nodes}
    return any((row := known.find(op)) is not None and row.is_a(Trait.CONTRACTION) for op in ops)


def _has_bytes(captured: CapturedStep) -> bool:
    """Whether what the programs of a step read has bytes; a skeleton that only lends its code needs none."""
    read = {slot.key for program in captured.programs for slot in program.inputs}
    return all(
        slot.current().device.type != "meta"
        for slot in captured.state.tensors
        if ("tensor", slot.name) in read
    )
