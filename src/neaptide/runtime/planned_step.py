"""A planned training step: called like the user's function, runs the planned program, guards every call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from neaptide.errors import StepInterrupted, StepMismatch
from neaptide.frontends.signature import Signature
from neaptide.frontends.step_slots import present_names
from neaptide.frontends.torch_step import CapturedProgram, CapturedStep
from neaptide.ir.schedule import Schedule
from neaptide.lower.torch_code import Watch, lower
from neaptide.ops import registry
from neaptide.plans import Plan
from neaptide.runtime.binding import Binding
from neaptide.runtime.executor import Executable

logger = logging.getLogger(__name__)

OnMismatch = Literal["replan", "eager", "error"]


@dataclass
class CallCounts:
    """What happened to the calls so far.

    Attributes:
        planned: calls that ran a planned program.
        eager: calls that ran the user's function as it is.
        replans: captures and plans made after the first.
        mismatches: for each distinct mismatch, in words, how often it was met.
    """

    planned: int = 0
    eager: int = 0
    replans: int = 0
    mismatches: dict[str, int] = field(default_factory=dict)

    def describe(self) -> str:
        """One line for a log."""
        met = "; ".join(f"{reason} ({count}x)" for reason, count in self.mismatches.items()) or "none"
        return f"{self.planned} planned, {self.eager} eager, {self.replans} replanned; mismatches: {met}"


@dataclass(frozen=True)
class PlannedVariant:
    """A capture and the order in which each of its programs runs.

    Attributes:
        captured: the step under one signature.
        schedules: one for each of `captured.programs`, in the same order.
        atomic: what is written before the updates at the end is saved, and put back when the step dies.
        plan: where the schedules come from; None for program order.
    """

    captured: CapturedStep
    schedules: tuple[Schedule, ...]
    atomic: bool = False
    plan: Plan | None = None


Replanner = Callable[[tuple[Any, ...], Mapping[str, Any]], PlannedVariant]


class PlannedStep:
    """Runs a step under its plan; the module and the optimizer stay the user's own objects.

    Args:
        step: the user's function, for calls that are not planned.
        make_variant: captures and plans for the arguments of a call.
        variant: the plan to begin with, or None to make it at the first call.
        on_mismatch: what a call does whose shapes, dtypes, devices, flags, hyper-parameters or `requires_grad`
            pattern differ from all plans so far: make a further plan, run eagerly, or raise `StepMismatch`.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        make_variant: Replanner,
        variant: PlannedVariant | None = None,
        *,
        on_mismatch: OnMismatch = "replan",
    ) -> None:
        self._step = step
        self._make_variant = make_variant
        self._on_mismatch = on_mismatch
        self._variants: list[_Variant] = [] if variant is None else [_Variant(variant)]
        self._interrupted: tuple[str, ...] = ()
        self.counts = CallCounts()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One training step; returns what the user's function returns.

        Raises:
            StepMismatch: with `on_mismatch="error"`, a call that no plan covers; names the differences.
            StepInterrupted: the call before died between updates; see `reset`.
        """
        if self._interrupted:
            raise StepInterrupted(
                "the step before this one died after it had begun to update the model",
                updated=self._interrupted,
                where=", ".join(self._interrupted[:5]) + (" ..." if len(self._interrupted) > 5 else ""),
                why="these tensors hold values of the next step, the others of the last",
                next_step="load the last saved state and call reset(), or plan with atomic=True",
            )
        variant, program = self._select(args, kwargs)
        if program is None:
            self.counts.eager += 1
            return self._step(*args, **kwargs)
        assert variant is not None
        return self._run(program, args, kwargs)

    def reset(self) -> None:
        """Say that the model has been put right after an interrupted step."""
        self._interrupted = ()

    @property
    def plan(self) -> Plan | None:
        """The plan that calls like the last new one run under; None before there is one."""
        return self._variants[-1].planned.plan if self._variants else None

    def resident(self) -> list[torch.Tensor]:
        """Tensors that live before and after each step: the state of the user's objects, and a few of ours."""
        if not self._variants:
            return []
        variant = self._variants[-1]
        program = variant.program_for(*present_names(variant.planned.captured.state))
        return program.binding.resident() if program is not None else []

    def program_source(self) -> str:
        """Text of the program of a usual step, for reading.

        Raises:
            StepMismatch: nothing has been planned yet.
        """
        if not self._variants:
            raise StepMismatch("nothing has been planned yet", next_step="call the step once")
        return self._variants[0].runnable(0).executable.program.source

    def run_watched(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, torch.Tensor]]:
        """A planned step that also copies each gradient as it is when `optimizer.step()` begins.

        For verify runs: the copies cost memory.
        """
        variant, program = self._select(args, kwargs)
        if program is None or variant is None:
            raise StepMismatch("this call is not planned, so there is nothing to verify")
        seen: dict[str, torch.Tensor] = {}
        return self._run(variant.watched(program.index), args, kwargs, seen), seen

    # -- choosing ---------------------------------------------------------------------------------------------

    def _select(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[_Variant | None, _Runnable | None]:
        signature = None
        reason = ""
        for variant in self._variants:
            signature = variant.planned.captured.reader.read(args, kwargs)
            if signature == variant.planned.captured.signature:
                names = present_names(variant.planned.captured.state)
                program = variant.program_for(*names)
                if program is not None:
                    return variant, program
                reason = "other gradients or optimizer state exist than in any step planned"
        if self._variants:
            if not reason:
                assert signature is not None
                reason = self._differences(signature)
            self.counts.mismatches[reason] = self.counts.mismatches.get(reason, 0) + 1
            if self._on_mismatch == "eager":
                return None, None
            if self._on_mismatch == "error":
                raise StepMismatch(
                    "this call differs from what was planned",
                    where=reason,
                    next_step='plan for it as well (on_mismatch="replan") or let it run eagerly ("eager")',
                )
            logger.info("planning again: %s", reason)
            self.counts.replans += 1
        made = _Variant(self._make_variant(args, kwargs))
        self._variants.append(made)
        program = made.program_for(*present_names(made.planned.captured.state))
        if program is None:
            raise StepMismatch(
                "the step changed while it was planned",
                why="the capture does not cover the gradients and optimizer state that exist now",
            )
        return made, program

    def _differences(self, signature: Signature) -> str:
        """The fewest differences from any plan, in words."""
        all_found = [signature.differences(v.planned.captured.signature) for v in self._variants]
        found = min(all_found, key=len)
        return "; ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")

    # -- running ----------------------------------------------------------------------------------------------

    def _run(
        self,
        program: _Runnable,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        watched: dict[str, torch.Tensor] | None = None,
    ) -> Any:
        inputs = program.binding.read(args, kwargs)
        early = {name: tensor.detach() for name, tensor in program.early_written(inputs)}
        saved = {name: tensor.clone() for name, tensor in early.items()}
        try:
            outputs = program.executable.run(inputs, watched)
        except BaseException:
            interruption = program.executable.interruption
            if interruption is not None:
                written = [name for name in interruption.written if name not in saved]
                if not written:
                    for name, tensor in early.items():
                        tensor.copy_(saved[name])
                self._interrupted = tuple(program.binding.user_name(name) for name in written)
            raise
        self.counts.planned += 1
        return program.binding.write_back(outputs)


@dataclass(frozen=True)
class _Runnable:
    index: int
    executable: Executable
    binding: Binding
    saved_inputs: tuple[int, ...] = ()

    def early_written(self, inputs: list[Any]) -> list[tuple[str, torch.Tensor]]:
        """Name and tensor of the inputs that are saved before the step (atomic plans only)."""
        graph = self.executable.program.graph
        return [(graph.values[graph.inputs[i]].name, inputs[i]) for i in self.saved_inputs]


class _Variant:
    """The programs of one capture, lowered when they are first needed."""

    def __init__(self, planned: PlannedVariant) -> None:
        self.planned = planned
        self._runnable: dict[int, _Runnable] = {}
        self._watched: dict[int, _Runnable] = {}

    def program_for(
        self, gradients: frozenset[str], optimizer_state: frozenset[tuple[str, str, str]]
    ) -> _Runnable | None:
        for index, program in enumerate(self.planned.captured.programs):
            if program.accepts(gradients, optimizer_state):
                return self.runnable(index)
        return None

    def runnable(self, index: int) -> _Runnable:
        if index not in self._runnable:
            self._runnable[index] = self._lower(index, ())
        return self._runnable[index]

    def watched(self, index: int) -> _Runnable:
        """The program with copies of its gradients on the way."""
        if index not in self._watched:
            program = self.planned.captured.programs[index]
            watches = tuple(Watch(o.name, o.value, o.version) for o in program.observations)
            self._watched[index] = self._lower(index, watches)
        return self._watched[index]

    def _lower(self, index: int, watches: tuple[Watch, ...]) -> _Runnable:
        program: CapturedProgram = self.planned.captured.programs[index]
        lowered = lower(program.graph, self.planned.schedules[index], registry(), watches=watches)
        executable = Executable(lowered, name=program.graph.name or "step")
        saved = _early_inputs(program) if self.planned.atomic else ()
        return _Runnable(index, executable, Binding(program, self.planned.captured.state), saved)


def _early_inputs(program: CapturedProgram) -> tuple[int, ...]:
    """Positions of the inputs that an operation with results of its own overwrites (running statistics)."""
    graph = program.graph
    early = {a.storage for n in graph.nodes if graph.created_storages(n) for a in n.effects.writes}
    return tuple(i for i, v in enumerate(graph.inputs) if graph.values[v].storage in early)
