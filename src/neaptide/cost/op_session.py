"""Runs many calls alone, one after another: workspace and results in one recording, then the times, outside of it.

The caller's world is left as it was: random generators, autocast. Operands of one call exist at a
time, and none afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Final

import torch

from neaptide.cost import host
from neaptide.cost.allocator_events import cuda_region, region, region_peaks
from neaptide.cost.call_clock import CallClock
from neaptide.cost.op_key import OpCall, OpRecord, OutputFacts
from neaptide.cost.op_runner import LONG_RUN_S, OperandMaker, PreparedCall, find_op, is_on_cuda
from neaptide.cost.used_memory import used_memory
from neaptide.ir.registry import OpRegistry, Trait
from neaptide.outcome import LimitGuard
from neaptide.units import format_bytes

_OWN_NAMESPACES: Final = frozenset({"aten", "prims"})
_RUN_ERRORS: Final = (RuntimeError, TypeError, ValueError, IndexError, AttributeError, MemoryError)
_SEED: Final = 0
# Numbers this many times as large make an operation take all the scratch bytes that it ever does.
_LARGE: Final = 64.0


SHORT_S: Final = 1e-2
"""Calls that take less are timed in the program. A convolutional step of 137 ms in 1, 2 and 4 parts was predicted at 1.02,
1.00 and .98 of what it took; with a limit of 1 ms and 4 MiB at .95, .99 and .98, so parts looked slower than they are."""
_SHORT_BYTES: Final = 24 * 2**20
"""Operands and results of such a call at most; those of all calls are held at the same time."""


def is_short(call: OpCall, alone_s: float) -> bool:
    """Whether a call is timed in the program, by its seconds when it is run alone."""
    is_small = call.is_view or call.operand_bytes + call.output_bytes <= _SHORT_BYTES
    return is_small and alone_s < SHORT_S and not is_on_cuda(call)


def run_calls(
    calls: Mapping[str, OpCall],
    guard: LimitGuard,
    registry: OpRegistry,
    clock: CallClock,
    *,
    short_once: bool = False,
) -> dict[str, OpRecord]:
    """Runs calls alone and returns what was seen of each; those that the guard left no time for are missing.

    A call that raises gets a record with its failure. The recorder is started once, and only for calls on the CPU.

    Args:
        registry: says whose scratch bytes depend on the numbers; of those the most of small and large ones counts.
        short_once: short calls will be timed among others, so that here once is enough.
    """
    seen: dict[str, OpRecord] = {}
    devices = sorted({d for call in calls.values() for d in call.devices if d.startswith("cuda")})
    on_host = {key: call for key, call in calls.items() if not is_on_cuda(call)}
    with undisturbed(devices), used_memory(most_bytes(on_host.values())):
        maker = OperandMaker()
        for key, measured_in_isolation in _audit_on_host(on_host, maker, clock, guard, registry).items():
            if measured_in_isolation.failure:
                seen[key] = measured_in_isolation
            elif guard.check_now() is None:
                seen[key] = _timed(measured_in_isolation, calls[key], maker, clock, short_once=short_once)
        for key, call in calls.items():
            if is_on_cuda(call) and guard.check_now() is None:
                seen[key] = _audit_on_cuda(call, maker, clock)
    return seen


def why_not_run(call: OpCall, registry: OpRegistry, max_bytes: int) -> str:
    """Why a call must not be run here; empty when it may.

    Args:
        max_bytes: most that operands and results may take; as much as the results is set aside for workspace.
    """
    row = registry.find(call.op)
    if row is None:
        return "the op table has no row for it"
    if call.is_collective or (row.host and not call.outputs):
        return "it talks to the host or to other processes"
    if not call.is_pure and call.op.partition(".")[0] not in _OWN_NAMESPACES:
        return "it is a custom operation with effects"
    if find_op(call.op) is None:
        return f"torch {torch.__version__} has no such operation"
    for device in sorted(call.devices):
        kind = torch.device(device).type
        if kind not in {"cpu", "cuda"} or (kind == "cuda" and not torch.cuda.is_available()):
            return f"its tensors are on {device!r}, which does not run here"
    needed = call.operand_bytes + 2 * call.output_bytes
    if not call.is_view and needed > max_bytes:
        return f"it needs {format_bytes(needed)}, more than the {format_bytes(max_bytes)} it may take"
    return ""


def most_bytes(calls: Iterable[OpCall]) -> int:
    """Bytes that any one of some calls takes: operands, results, and scratch of as many bytes; views take none."""
    return max((2 * (c.operand_bytes + c.output_bytes) for c in calls if not c.is_view), default=0)


def environment() -> str:
    """Everything beside a call that its cost depends on: processor, threads, version and modes of PyTorch."""
    threads = torch.get_num_threads()
    parts = [
        host.cpu_model(),
        f"{threads} thread{'s' if threads > 1 else ''}",
        f"torch {torch.__version__}",
        f"{torch.get_float32_matmul_precision()} matmul precision",
    ]
    # Apart from what was kept before, at any pace or at one that few readings, or their mean, told.
    parts.append("at the median pace")
    if torch.are_deterministic_algorithms_enabled():
        parts.append("deterministic algorithms")
    if torch.cuda.is_available():
        parts.append(torch.cuda.get_device_name())
    return ", ".join(parts)


def cache_share_bytes() -> int:
    """What the threads of a program have of the processor's last cache, when all its processors are busy."""
    size_bytes, processors = host.last_cache()
    return size_bytes * min(torch.get_num_threads(), processors) // processors


def is_out_of_memory(failure: str) -> bool:
    """Whether a call failed for want of memory, which says nothing about the next time."""
    return "MemoryError" in failure or "allocate memory" in failure or "out of memory" in failure


def _audit_on_host(
    calls: Mapping[str, OpCall],
    maker: OperandMaker,
    clock: CallClock,
    guard: LimitGuard,
    registry: OpRegistry,
) -> dict[str, OpRecord]:
    found: dict[str, OpRecord] = {}
    if not calls:
        return found

    def run_all() -> None:
        for key, call in calls.items():
            if guard.check_now() is not None:
                return
            found[key] = _measured_in_isolation(key, call, maker, clock)
            row = registry.find(call.op)
            if row is not None and row.is_a(Trait.DATA_SIZED) and not found[key].failure:
                _measured_in_isolation(_large(key), call, OperandMaker(_LARGE), clock)

    peaks = region_peaks(run_all)
    for key, seen in found.items():
        if not seen.failure:
            peak = max(peaks[key], peaks.get(_large(key), 0))
            found[key] = replace(seen, workspace_bytes=max(0, peak - seen.fresh_bytes))
    return found


def _large(key: str) -> str:
    return f"{key} on large numbers"


def _measured_in_isolation(key: str, call: OpCall, maker: OperandMaker, clock: CallClock) -> OpRecord:
    """Results; how long a call takes is not told by runs that the recorder slows down."""
    try:
        prepared = PreparedCall(call, maker.operands(call))
        spent_s, facts = _run_in_region(prepared, key, clock)
        if spent_s < LONG_RUN_S:
            _, facts = _run_in_region(prepared, key, clock)
    except _RUN_ERRORS as error:
        return OpRecord(call.op, failure=_text_of(error))
    return OpRecord(call.op, outputs=facts)


def _run_in_region(
    prepared: PreparedCall, key: str, clock: CallClock
) -> tuple[float, tuple[OutputFacts | None, ...]]:
    """Seconds and results of one run whose allocations, and nothing else's, are recorded under `key`."""
    kept: list[object] = []
    with region(key):
        elapsed = clock.seconds_now(lambda: kept.append(prepared.run()))
    return elapsed, tuple(prepared.facts(kept.pop()))


def _audit_on_cuda(call: OpCall, maker: OperandMaker, clock: CallClock) -> OpRecord:
    try:
        prepared = PreparedCall(call, maker.operands(call))
        kept: list[object] = []
        first_s = prepared.seconds(clock, kept)
        facts = tuple(prepared.facts(kept.pop()))
        seen = cuda_region(prepared.run)
        spent_s = first_s if first_s > LONG_RUN_S else prepared.median_seconds(clock, prepared.seconds(clock))
    except _RUN_ERRORS as error:
        return OpRecord(call.op, failure=_text_of(error))
    found = OpRecord(call.op, spent_s, outputs=facts)
    return replace(found, workspace_bytes=max(0, seen.peak_bytes - found.fresh_bytes))


def _timed(
    seen: OpRecord, call: OpCall, maker: OperandMaker, clock: CallClock, *, short_once: bool
) -> OpRecord:
    """The time of a call, away from the recorder, which would slow down the clock's own work as well."""
    try:
        prepared = PreparedCall(call, maker.operands(call))
        spent_s = prepared.seconds(clock)
        if not (short_once and is_short(call, spent_s)):
            spent_s = prepared.median_seconds(clock, spent_s)
    except _RUN_ERRORS as error:
        return OpRecord(call.op, failure=_text_of(error))
    return replace(seen, seconds=spent_s)


def _text_of(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")


@contextmanager
def undisturbed(cuda_devices: list[str]) -> Iterator[None]:
    """No autocast, random numbers from a fixed seed; all as before at the end."""
    with ExitStack() as stack:
        # As a planned step runs. No operand needs a gradient, so nothing is recorded; without gradient mode
        # recurrent kernels would return no workspace for their backward.
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.autocast("cpu", enabled=False))
        stack.enter_context(torch.random.fork_rng(devices=[torch.device(d) for d in cuda_devices]))
        if cuda_devices:
            stack.enter_context(torch.autocast("cuda", enabled=False))
        # Not `torch.manual_seed`, which would seed accelerators that are not part of this.
        torch.default_generator.manual_seed(_SEED)
        for name in cuda_devices:
            with torch.cuda.device(name):
                torch.cuda.manual_seed(_SEED)
        yield
