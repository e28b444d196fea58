"""A planned training step: called like the user's function, runs the planned program, guards every call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch

from neaptide.copy_engines.copy_engine import DEFAULT_SLOW_MEMORY, SlowMemory
from neaptide.copy_engines.waiting_state import WaitingState
from neaptide.errors import InfeasibleBudget, StepInterrupted, StepMismatch, UsageError
from neaptide.frontends.state.state_finder import find_state
from neaptide.frontends.state.step_state import TensorSlot
from neaptide.plans import Plan
from neaptide.runtime.arena.plan import ArenaOnTheWay, ArenaReport
from neaptide.runtime.arena.tensors_by_shape import Arenas
from neaptide.runtime.calls.binding import state_tensors
from neaptide.runtime.calls.state_copy import RestorePoint
from neaptide.runtime.calls.state_on_host import StateOnHost
from neaptide.runtime.shapes.point_executable import EvictionTotals, PointExecutable
from neaptide.runtime.steps.arena_report import arena_on_the_way, arena_report
from neaptide.runtime.steps.arguments import OnMismatch, Remake, deep_copied, not_pickled
from neaptide.runtime.steps.beside_eager import NEVER, BesideEager, CallBeside
from neaptide.runtime.steps.call_counts import CallCounts, ReplansInARow
from neaptide.runtime.steps.lowered_variant import LoweredVariant, Runnable
from neaptide.runtime.steps.planned_graph import PlannedVariant
from neaptide.runtime.steps.unread_values import UnreadValues

logger = logging.getLogger(__name__)


MOST_VARIANTS = (
    8  # kinds of calls that stay planned at a time; each keeps the objects it was captured with alive
)
_NAMED = 5  # tensors that a message names
_LONGEST = 160  # characters of a mismatch in a warning


Replanner = Callable[[tuple[Any, ...], Mapping[str, Any], frozenset[str]], PlannedVariant]


class PlannedStep:
    """Runs a step under its plan; the module and the optimizer stay the user's own objects.

    A step that dies before it has updated anything leaves parameters, buffers, optimizer state and the random state
    as they were, and the call can be repeated; a gradient that the step would throw away unread is gone, as after
    its `zero_grad`. A step that dies later leaves the model between two steps, and the next call says so.

    The eight kinds of calls met last stay planned (`MOST_VARIANTS`). Each keeps alive the module and the optimizer
    that it was captured with: after replacing a model, make a new planned step.

    Not safe to call from several threads at once, as the step itself is not: it writes the model in place.

    Args:
        make_variant: captures and plans for the arguments of a call; its third argument names Python numbers that
            have changed between calls, to be made inputs where that is possible.
        on_mismatch: what a call does whose shapes, dtypes, devices, flags, hyper-parameters or `requires_grad`
            pattern differ from all plans so far: make a further plan, run eagerly, or raise `StepMismatch`.
        verify: which planned calls are compared with eager, as `BesideEager` takes it, or `never`.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        make_variant: Replanner,
        variant: PlannedVariant | None = None,
        *,
        on_mismatch: OnMismatch = "replan",
        verify: str = NEVER,
        strict: bool = False,
        slow: SlowMemory = DEFAULT_SLOW_MEMORY,
    ) -> None:
        self._step = step
        self.remake: Remake | None = None
        self._make_variant = make_variant
        self._on_mismatch = on_mismatch
        self._arenas = Arenas(self._let_go)
        self._waiting = WaitingState()
        self._on_host: StateOnHost | None = None
        self._user_name: Callable[[str], str] = str
        self._variants: list[LoweredVariant] = []  # last used is last
        if variant is not None:
            self._variants.append(LoweredVariant(variant, self._arenas, self._waiting))
        self._interrupted: tuple[str, ...] = ()
        self._changing: frozenset[str] = frozenset()
        self._has_dropped = False
        self._unread = UnreadValues()
        self._in_a_row = ReplansInARow()
        self.counts = CallCounts()
        self._beside: BesideEager | None = None
        if verify != NEVER:
            self._beside = BesideEager(verify, strict=strict, slow=slow, found=self.counts.verified)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One training step; returns what the user's function returns.

        Raises:
            StepMismatch: with `on_mismatch="error"`, a call that no plan covers; names the differences.
            StepInterrupted: the call before died between updates; see `reset`.
            TransferError: plans are to be tried, and there is no room for a copy of the model and its state.
            NumericsError: with `strict`, a call that is verified gives other bits than eager; it has changed nothing.
        """
        if self._interrupted:
            raise StepInterrupted(
                "the step before this one died after it had begun to update the model",
                updated=self._interrupted,
                where=_named(self._interrupted),
                why="these tensors hold values of the next step, in part or in whole, the others of the last",
                next_step="load the last saved state and call reset(), or plan with atomic=True",
            )
        variant, program = self._select(args, kwargs)
        if program is None:
            self.bring_state_back()
            self.counts.eager += 1
            return self._step(*args, **kwargs)
        assert variant is not None
        if program.index == 0 and variant.planned.choice is not None:
            planned = variant.planned.choice.settle(self._step, args, kwargs)
            variant = self._variants[-1] = LoweredVariant(planned, self._arenas, self._waiting)
            program = variant.runnable(program.index)
        if self._beside is not None and self._beside.is_due(variant, program, self.counts.planned):
            result = self._verified(self._beside, variant, program, args, kwargs)
        else:
            result = self._computed(program, args, kwargs)
        return _finished(program, result, args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> PlannedStep:
        """The same step of the copied objects, planned when it is first called."""
        return deep_copied(self, self._step, self.remake, memo)

    def __reduce_ex__(self, _protocol: Any) -> Any:
        """Refused: see `not_pickled`."""
        raise not_pickled()

    def reset(self) -> None:
        """Say that the model has been put right after an interrupted step."""
        self._interrupted = ()

    def state_on_host(self) -> StateOnHost:
        """A context inside of which state is on the host between two steps, where the plan says so.

        Outside of it everything is on the device. Inside, parameters and optimizer states that wait have no bytes from
        the end of the first step on, and reading them is an error or worse. What asks for them by `state_dict()` or
        `load_state_dict()` of the module or the optimizer, a call that runs eagerly, a new plan, an error and
        `bring_state_back()` have all of them on the device until the next step. Steps of other plans need no context, and it
        does nothing to them.

        Raises:
            UsageError: when it is entered: it is entered already.
        """
        return StateOnHost(self._hold, self.bring_state_back)

    def bring_state_back(self) -> None:
        """Have all state on the device until the next step.

        Raises:
            StepInterrupted: some of it is lost: the copies failed.
        """
        lost = tuple(map(self._user_name, self._waiting.bring_back()))
        if lost:
            self._interrupted = tuple(dict.fromkeys((*self._interrupted, *lost)))
            raise StepInterrupted(
                "state that was on the host between two steps could not be copied back",
                updated=self._interrupted,
                where=_named(lost),
                why="the bytes of these tensors are lost",
                next_step="load the last saved state and call reset()",
            )

    def _hold(self, context: StateOnHost | None) -> None:
        if context is not None and self._on_host is not None:
            raise UsageError("the state of this step is on the host already", next_step="leave that context")
        self._on_host = context
        if context is not None:
            for variant in self._variants:
                context.watch(variant.planned.captured.state)

    @property
    def plan(self) -> Plan | None:
        """The plan that the last planned call ran under; None before there is one, and for a program of all shapes planned here."""
        return self._variants[-1].planned.plan if self._variants else None

    def is_steady(self, *args: Any, **kwargs: Any) -> bool:
        """Whether a call with these arguments would run the program of a usual step, not one of the first ones."""
        program = self._variants[-1].program_now((args, kwargs)) if self._variants else None
        return program is not None and program.index == 0

    def persistent(self) -> list[torch.Tensor]:
        """Tensors that live before and after each step: the state of the user's objects, and a few of ours.

        What only host code after the program works on is among them.
        """
        if not self._variants:
            return []
        program = self._variants[-1].program_now()
        bound = program.binding.persistent() if program is not None else []
        host = self._variants[-1].planned.captured.host
        behind = [] if host is None else state_tensors(find_state(self._step))
        return [*bound, *behind, *self._arenas.blocks()]

    def state_slots(self) -> list[TensorSlot]:
        """The user's tensors that the programs of the latest kind of call work on."""
        return list(self._variants[-1].planned.captured.state.tensors) if self._variants else []

    @property
    def arena(self) -> ArenaReport | None:
        """Numbers of the arena that a usual step as last planned runs in; None where it runs in none.

        Of a program for all shapes: of the shape of its last usual step, in a block of just its bytes; None before one.
        """
        if not self._variants:
            return None
        planned = self._variants[-1].planned.graphs[0]
        if planned.points is None or planned.points.arena is None:
            return None if planned.arena is None else planned.arena.report
        executable = self._variants[-1].runnable(0).executable
        inside = executable.inside if isinstance(executable, PointExecutable) else None
        return None if inside is None else arena_report(planned.points.arena, inside)

    def arena_on_the_way(self) -> tuple[ArenaOnTheWay, ...]:
        """Predicted bytes of the arena of a program for all shapes, at up to nine shapes from the smallest to the largest.

        Nothing where the step as last planned is for one shape, or runs in no arena.
        """
        return arena_on_the_way(self._variants[-1].planned.graphs[0]) if self._variants else ()

    @property
    def eviction(self) -> EvictionTotals | None:
        """What was evicted in the last usual step of a program that evicts as it runs; None for others, or before one.

        These are the programs of `eviction=`, and those for all shapes.
        """
        executable = self._variants[-1].runnable(0).executable if self._variants else None
        return executable.totals if isinstance(executable, PointExecutable) else None

    def program_source(self) -> str:
        """Text of the program of a usual step as last planned, for reading.

        Raises:
            StepMismatch: nothing has been planned yet.
        """
        if not self._variants:
            raise StepMismatch("nothing has been planned yet", next_step="call the step once")
        return self._variants[-1].runnable(0).executable.program.source

    def run_watched(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, torch.Tensor]]:
        """A planned step that also copies each gradient as it is when `optimizer.step()` begins.

        For verify runs: the copies cost memory.
        """
        variant, program = self._select(args, kwargs)
        if program is None or variant is None:
            raise StepMismatch("this call is not planned, so there is nothing to verify")
        seen: dict[str, torch.Tensor] = {}
        watched = variant.runnable(program.index, is_watched=True)
        return _finished(watched, self._computed(watched, args, kwargs, seen), args, kwargs), seen

    # -- choosing ---------------------------------------------------------------------------------------------

    def _select(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[LoweredVariant | None, Runnable | None]:
        """The program for a call, planned now if need be; none for a call that is to run eagerly."""
        if not self._variants:
            return self._plan(args, kwargs)
        reason = ""
        for variant in reversed(self._variants):
            if variant.planned.captured.agrees(args, kwargs):
                program = variant.program_now((args, kwargs))
                if program is not None:
                    if variant is not self._variants[-1]:
                        self._variants.remove(variant)
                        self._variants.append(variant)
                    self._in_a_row.end()
                    return variant, program
                reason = variant.why_none()
        if not reason and (relaxed := self._relaxed(args, kwargs)) is not None:
            return relaxed
        reason = reason or self._differences(args, kwargs)
        is_new = self.counts.note_mismatch(reason)
        if self._on_mismatch == "eager":
            if is_new:
                logger.warning("this call runs eagerly, without its budget, as will all alike: %s", reason)
            return None, None
        if self._on_mismatch == "error":
            raise StepMismatch(
                "this call differs from what was planned",
                where=reason,
                next_step='plan for it as well (on_mismatch="replan") or let it run eagerly ("eager")',
            )
        logger.info("planning again: %s", reason)
        self.counts.replans += 1
        latest = self._variants[-1].planned.captured
        now = latest.read_signature(args, kwargs)
        self._in_a_row.add(now, latest.signature)
        self._changing |= now.changed_numbers(latest.signature) or frozenset()
        try:
            return self._plan(args, kwargs)
        except InfeasibleBudget as error:
            raise error.for_calls(reason) from error

    def _relaxed(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[LoweredVariant, Runnable] | None:
        """A program for a call that differs in values alone which it does not read; they are no guards from then on."""
        for variant in reversed(self._variants):
            found = self._unread.relaxed(variant.planned, args, kwargs)
            if found is not None:
                made = LoweredVariant(found, self._arenas, self._waiting)
                program = made.program_now((args, kwargs))
                if program is not None:
                    self._variants.remove(variant)
                    self._variants.append(made)
                    return made, program
        return None

    def _plan(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[LoweredVariant, Runnable]:
        self.bring_state_back()
        planned = self._make_variant(args, kwargs, self._changing)
        made = LoweredVariant(planned, self._arenas, self._waiting)
        program = made.program_now((args, kwargs))
        if program is None:
            raise StepMismatch(
                "the step changed while it was planned",
                why="the capture does not cover the gradients and optimizer state that exist now",
                next_step="call the step from one thread, and leave its model alone meanwhile",
            )
        if len(self._variants) >= MOST_VARIANTS:
            self._drop_one()
        self._variants.append(made)
        if self._on_host is not None:
            self._on_host.watch(made.planned.captured.state)
        self.counts.ranges = tuple(map(str, made.planned.captured.steady.graph.dims))
        return made, program

    def _drop_one(self) -> None:
        """Drop the plan that was used least lately; says so once."""
        del self._variants[0]
        if not self._has_dropped:
            self._has_dropped = True
            last = next(reversed(self.counts.mismatches), "")
            logger.warning(
                "more than %d kinds of calls were planned, so the plan used least lately is dropped each time; last: %s%s; "
                "pad sizes to a few multiples, pass values that change as tensors, or leave such calls to "
                'on_mismatch="eager"; counts.describe() has all',
                MOST_VARIANTS,
                last[:_LONGEST],
                "..." if len(last) > _LONGEST else "",
            )

    def _let_go(self) -> None:
        """Drop what holds tensors in an arena; it is lowered again when it is needed."""
        for variant in self._variants:
            variant.forget()

    def _differences(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        captures = [variant.planned.captured for variant in self._variants]
        all_found = [c.read_signature(args, kwargs).differences(c.signature) for c in captures]
        found = min(all_found, key=len)
        return "; ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")

    # -- running ----------------------------------------------------------------------------------------------

    def _verified(
        self,
        beside: BesideEager,
        variant: LoweredVariant,
        program: Runnable,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """A call that eager does as well, for comparison, without host code after it."""
        self.bring_state_back()
        eager = self._step if program.host is None else program.host.head
        call = CallBeside(
            program,
            args,
            kwargs,
            lambda: eager(*args, **kwargs),
            lambda: self._computed(program, args, kwargs),
        )
        blocks = sum(block.untyped_storage().nbytes() for block in self._arenas.blocks())
        return beside.call(variant, call, blocks)

    def _computed(
        self,
        program: Runnable,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        watched: dict[str, torch.Tensor] | None = None,
    ) -> Any:
        """What the program returns; host code after it is left to do."""
        if program.executable.keeps_state and self._on_host is None:
            raise UsageError(
                "the plan of this step has state on the host between two steps, and nobody holds it there",
                next_step="call the step inside of `with step.state_on_host():`",
            )
        self._user_name = program.binding.user_name
        if not program.executable.keeps_state:
            self.bring_state_back()
        program.first_writes.do()
        inputs = program.binding.read(args, kwargs)
        before = program.restore_point(inputs)
        outputs = None
        try:
            outputs = program.executable.run(inputs, watched)
            result = program.binding.write_back(outputs)
        except BaseException as error:
            executable = program.executable
            if outputs is not None:
                written = executable.written()
            else:
                written = executable.interruption.written if executable.interruption else ()
            self._clean_up(program, before, written, error)
            raise
        self.counts.planned += 1
        before.let_go()
        return result

    def _clean_up(
        self, program: Runnable, before: RestorePoint, written: tuple[str, ...], error: BaseException
    ) -> None:
        """Take a step that died back to where it began, or remember that it is too late for that."""
        names = tuple(map(program.binding.user_name, written))
        self._interrupted = names  # until all is put back, should that be interrupted as well
        if program.saves(written):
            before.put_back()
            self._interrupted = ()
            told = "nothing of the model has changed" if not names else f"put back as it was: {_named(names)}"
            error.add_note(f"  after: {told}; the step can be called again")
        else:
            error.add_note(
                f"  after: already updated, in part or in whole: {_named(names)}; call reset() once it is right"
            )
        before.let_go()


def _finished(program: Runnable, result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What the step returns: what the program does, or what host code after it makes of that.

    What the tail raises is the user's own, and the model is as in eager: the program has come to its end.
    """
    return result if program.host is None else program.host.finish(result, args, kwargs)


def _named(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
