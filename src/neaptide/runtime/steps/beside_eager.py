"""A planned call that is verified: eager runs in front of it on the same objects, and their bits are compared."""

from __future__ import annotations

import gc
import logging
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch

from neaptide.copy_engines.copy_engine import SlowMemory
from neaptide.cost.random_states import random_devices, random_state
from neaptide.errors import NumericsError, NumericsWarning, TransferError
from neaptide.frontends.objects.batch_objects import leaves_of
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.runtime.calls.state_copy import StateCopy
from neaptide.runtime.saving.digests import (
    Digests,
    OperationLog,
    as_user_sees,
    first_difference,
    result_digests,
    state_digests,
)
from neaptide.runtime.saving.eager_bytes import EagerBytes
from neaptide.runtime.saving.scratch_file import SavedInFile, ScratchFile, storages_of
from neaptide.runtime.steps.lowered_variant import LoweredVariant, Runnable
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant
from neaptide.transform.fusion.group import NAME as FUSION
from neaptide.units import format_bytes, format_seconds

logger = logging.getLogger(__name__)

NEVER: Final = "never"
_EVERY: Final = "every "
_HOOKS: Final = "saved tensor hooks"
_NAMED: Final = 3


@dataclass
class Verified:
    """What verified calls found so far, and what they cost."""

    calls: int = 0  # that were compared with eager
    differed: int = 0  # of those
    seconds: float = 0.0  # that they took beside the planned step itself
    file_bytes: int = 0  # most that one of them had in a file
    left_out: str = ""  # why calls were not compared, in words; empty where none was left out

    def describe(self) -> str:
        """Part of a line for a log; empty where nothing was to be verified."""
        if not self.calls:
            return f"not verified: {self.left_out}" if self.left_out else ""
        bits = f"{self.differed} differed" if self.differed else "same bits"
        return (
            f"{self.calls} verified beside eager: {bits}, in {format_seconds(self.seconds)} more, "
            f"with {format_bytes(self.file_bytes)} in a file meanwhile"
        )


class _NotPossibleError(Exception):
    """This call cannot be verified; the text says why."""


class BesideEager:
    """Verifies planned calls.

    Eager runs first, on the user's own objects, which are put back from a file; then the plan runs. Nothing is kept of eager but
    short numbers for each tensor. Where the budget is less than what eager takes, what autograd saves waits in the file too.

    Args:
        when: `first`: the first call of each program; `every 100`: that of each hundredth planned call as well.
    """

    def __init__(self, when: str, *, strict: bool, slow: SlowMemory, found: Verified) -> None:
        self._every = int(when.removeprefix(_EVERY)) if when.startswith(_EVERY) else 0
        self._strict = strict
        self._slow = slow
        self._found = found
        self._done: WeakKeyDictionary[LoweredVariant, set[int]] = WeakKeyDictionary()

    def is_due(self, variant: LoweredVariant, program: Runnable, planned_calls: int) -> bool:
        """Whether the next call is verified."""
        if program.index not in self._done.get(variant, ()):
            return True
        return bool(self._every) and planned_calls % self._every == 0

    def call(self, variant: LoweredVariant, call: CallBeside, block_bytes: int) -> Any:
        """Run eager and the program; gives what the program returns. `block_bytes` are of the blocks that programs run in."""
        began = time.perf_counter()
        index = call.program.index
        try:
            in_file = _bytes_in_file(variant.planned, call, block_bytes)
            with ScratchFile(self._slow) as file:
                checked = _Checked(variant.planned.captured, call, file, in_file)
                result = checked.compare()
                self._found.file_bytes = max(self._found.file_bytes, file.nbytes)
                self._found.seconds += time.perf_counter() - began - checked.run_seconds
                where = checked.first_operation() if checked.difference else ""
                self._found.calls += 1
                if checked.difference:
                    self._found.differed += 1
                    result = self._tell(checked, where, result)
        except (_NotPossibleError, TransferError) as reason:
            self._leave_out(reason.what if isinstance(reason, TransferError) else str(reason))
            result = call.run()
        else:
            logger.info("%s", self._found.describe())
        self._done.setdefault(variant, set()).add(index)  # a call that dies is no verified one
        return result

    def _tell(self, checked: _Checked, where: str, result: Any) -> Any:
        why = checked.difference
        if self._strict:
            checked.put_back()
            raise NumericsError(
                "the planned step gives other bits than eager; the call has changed nothing",
                where=where,
                why=why,
                next_step="report this with the step; train without a plan meanwhile, or leave strict out",
            )
        warnings.warn(
            f"the planned step gives other bits than eager: {why}; the first operation that differs is {where}. Train without a "
            'plan, or see docs/explanation/numerics.md; verify="never" leaves this check out',
            NumericsWarning,
            stacklevel=4,
        )
        del result
        checked.put_back()
        return checked.eager()

    def _leave_out(self, why: str) -> None:
        if not self._found.left_out:
            logger.warning(
                'this step is not verified against eager: %s; `neaptide compare` does it, and verify="never" leaves this line out',
                why,
            )
        self._found.left_out = why


@dataclass(frozen=True)
class CallBeside:
    """A call by the step as it is, without host code after it, and by its program, likewise."""

    program: Runnable
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    eager: Callable[[], Any]
    run: Callable[[], Any]


class _Checked:
    """One call, by eager and by the program."""

    def __init__(self, captured: CapturedStep, call: CallBeside, file: ScratchFile, in_file: int) -> None:
        self.difference = ""
        self.run_seconds = 0.0
        self._captured, self._call = captured, call
        self._in_file, self._file = in_file, file
        # Neither eager nor the program reads them, and both let go of them: nobody else may keep them alive.
        call.program.binding.discard()
        captured.first_writes.let_go()
        self._before = captured.first_writes.contents()
        captured.first_writes.do()  # the state was found as it is after them
        try:
            self._copy = StateCopy(captured, call.args, call.kwargs, file)
        finally:
            captured.first_writes.put_back(self._before)
        leaves = leaves_of((call.args, dict(call.kwargs)))
        self._tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self._there = storages_of([*call.program.binding.persistent(), *self._tensors])

    def put_back(self) -> None:
        """Have everything as it was before the call, whoever interrupts it."""
        try:
            self._put_back()
        except KeyboardInterrupt:
            self._put_back()
            raise

    def _put_back(self) -> None:
        writes = self._captured.first_writes
        writes.do()
        self._copy.put_back()
        writes.put_back(self._before)

    def eager(self) -> Any:
        return self._within_bytes(self._call.eager)

    def compare(self) -> Any:
        """Run both; gives what the program returns. `difference` tells how they differ."""
        try:
            self._expected = self._after(self.eager)
        finally:  # whatever ends it, eager is not to have done the step
            self.put_back()
        gc.collect(1)  # what the user's code leaves in cycles is not to lie beside the program
        began = time.perf_counter()
        result = self._call.run()
        self.run_seconds = time.perf_counter() - began
        self._got = self._digests(result)
        self.difference = _told(self._expected, self._got)
        return result

    def first_operation(self) -> str:
        """The first operation of eager that the program has not with the same bits, in words; nothing is left of the runs."""
        self.put_back()
        if _told(self._after(self.eager), self._expected):
            self.put_back()
            raise _NotPossibleError("eager itself gives other bits at the next run")
        self.put_back()
        with OperationLog() as eager:
            self.eager()
        self.put_back()
        with OperationLog() as again:
            self.eager()
        self.put_back()
        if (varying := first_difference(again.rows, eager)) is not None:
            raise _NotPossibleError(f"eager itself gives other bits at the next run, first of {varying}")
        with OperationLog() as ours:
            self._call.run()
        return first_difference(eager.rows, ours) or (
            "one that only differs while nobody watches (torch takes another kernel when it is watched)"
        )

    def _within_bytes(self, step: Callable[[], Any]) -> Any:
        try:
            with SavedInFile(self._file, self._in_file, self._there) if self._in_file else nullcontext():
                return step()
        except BaseException as error:
            self.put_back()
            if self._in_file and _HOOKS in str(error):
                raise _NotPossibleError(str(error).splitlines()[0]) from error
            raise

    def _after(self, step: Callable[[], Any]) -> Digests:
        return self._digests(step())

    def _digests(self, result: Any) -> Digests:
        left = self._captured.left
        tensors = {place.name: as_user_sees(place.get()) for place, _ in left}
        random = {"the random state": tuple(map(random_state, random_devices()))}
        batch = {f"batch[{at}]": found for at, found in enumerate(result_digests(self._tensors).values())}
        return result_digests(result) | state_digests(self._captured.state) | tensors | batch | random


def _told(expected: Digests, got: Digests) -> str:
    names = [name for name in {**expected, **got} if expected.get(name) != got.get(name)]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}" if names else ""


def _bytes_in_file(planned: PlannedVariant, call: CallBeside, block_bytes: int) -> int:
    """How much of what autograd saves must go to a file, so that eager stays within the bytes of the plan."""
    graph = planned.graphs[call.program.index]
    if not planned.keeps_bits:
        fuses = any(one.rule == FUSION for made in planned.graphs for one in made.rewrites)
        asked = 'lowering="inductor"' if fuses else 'numerics="close"'
        raise _NotPossibleError(f"{asked} takes sums in another order")
    if planned.plan is not None and planned.plan.bits_may_vary:
        raise _NotPossibleError("operations may give other bits at every run")
    if planned.captured.checkpoints == "undo":
        raise _NotPossibleError('checkpoints="undo" runs once what eager runs twice')
    if call.program.executable.keeps_state:
        raise _NotPossibleError("its state is on the host between two steps")
    limit, scratch = _limit(planned, graph, call.program.index)
    if limit is None:
        return 0
    captured = planned.captured
    sizes = (
        {} if captured.sizes is None else captured.sizes.binding(leaves_of((call.args, dict(call.kwargs))))
    )
    bytes_of = EagerBytes(graph.program, sizes)
    in_file = bytes_of.bytes_in_file(limit - scratch - block_bytes)
    if in_file is None:
        least = bytes_of.peak(1 << 62) + scratch + block_bytes
        raise _NotPossibleError(
            f"eager may take {format_bytes(least)}, and {format_bytes(limit)} are allowed"
        )
    return in_file


def _limit(planned: PlannedVariant, graph: PlannedGraph, index: int) -> tuple[int | None, int]:
    """Bytes that eager may take beside nothing else, None for as many as it takes; and scratch of its kernels among them."""
    if planned.plan is None or planned.plan.all_shapes is not None:
        return graph.limit_bytes or None, 0
    made = planned.plan.programs[index]
    told = made.predictions
    if not graph.checkpoints and made.budget_bytes >= told.baseline_peak_with_workspace_bytes:
        return None, 0
    scratch = max(
        told.baseline_peak_with_workspace_bytes - told.baseline_peak_bytes,
        told.peak_with_workspace_bytes - told.peak_bytes,
    )
    return max(made.budget_bytes, told.peak_with_workspace_bytes), scratch
