"""Runs calls alone, one after another: workspace and results in one recording, then the times, outside of it.

The caller's world is left as it was: random generators, autocast. Operands of one call exist at a time, and none afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Final

import torch

from neaptide.cost import host
from neaptide.cost.cards.allocator_events import region, region_peaks, region_scratch
from neaptide.cost.cards.cuda_card import card_in_words
from neaptide.cost.op_key import OpCall, OpRecord
from neaptide.cost.timing.call_clock import CallClock, used_memory
from neaptide.cost.timing.op_runner import (
    LONG_RUN_S,
    OperandMaker,
    PreparedCall,
    card_of,
    find_op,
    is_on_cuda,
)
from neaptide.ir.registry import OpRegistry, Trait
from neaptide.ops.fused import FUSED_OP
from neaptide.units import format_bytes

RUN_ERRORS: Final = (RuntimeError, TypeError, ValueError, IndexError, AttributeError, MemoryError)
"""What an operation that is run alone on made-up operands may raise."""
CPU: Final = torch.device("cpu")
_OWN_NAMESPACES: Final = frozenset({"aten", "prims"})
_SEED: Final = 0
# Numbers this many times as large make an operation take all the scratch bytes that it ever does.
_LARGE: Final = 64.0
_SHARE_OF_FREE_MEMORY: Final = 0.5

SHORT_S: Final = 1e-2
"""Calls that take less are timed in the program. A convolutional step of 137 ms in 1, 2 and 4 parts was predicted at 1.02,
1.00 and .98 of what it took; with a limit of 1 ms and 4 MiB at .95, .99 and .98, so parts looked slower than they are."""
_SHORT_BYTES: Final = 24 * 2**20
"""Operands and results of such a call at most; those of all calls are held at the same time."""

Counted = Callable[[str, Callable[[], object]], None]
"""Runs a function and counts what it allocates, under a name."""


def is_short(call: OpCall, alone_s: float) -> bool:
    """Whether a call is timed in the program, by its seconds when it is run alone."""
    is_small = call.is_view or call.operand_bytes + call.output_bytes <= _SHORT_BYTES
    return is_small and alone_s < SHORT_S and not is_on_cuda(call)


def run_calls(calls: Mapping[str, OpCall], registry: OpRegistry, clock: CallClock) -> dict[str, OpRecord]:
    """Runs calls alone and returns what was seen of each; one that raises gets a record with its failure.

    Of those whose scratch bytes depend on the numbers the most of small and large ones counts. A short call is timed
    once: it will be timed among others.
    """
    seen: dict[str, OpRecord] = {}
    maker, large = OperandMaker(), OperandMaker(_LARGE)

    def look(key: str, count: Counted) -> None:
        seen[key] = _looked_at(key, calls[key], maker, count)
        row = registry.find(calls[key].op)
        if row is not None and row.is_a(Trait.DATA_SIZED) and not seen[key].failure:
            _looked_at(_large(key), calls[key], large, count)

    on_host = [call for call in calls.values() if not is_on_cuda(call)]
    with undisturbed(calls.values()), used_memory(most_bytes(on_host)):
        peaks = counted(calls, look, on_card=region_scratch)
        for key, record in seen.items():
            if not record.failure:
                own = 0 if is_on_cuda(calls[key]) else record.fresh_bytes
                scratch = max(peaks[key], peaks.get(_large(key), 0)) - own
                audited = replace(record, workspace_bytes=max(0, scratch))
                seen[key] = _timed(audited, calls[key], maker, clock)
    return seen


def counted(
    calls: Mapping[str, OpCall],
    visit: Callable[[str, Counted], None],
    on_card: Callable[[Callable[[], object], torch.device], dict[str, int]] = region_peaks,
) -> dict[str, int]:
    """Visits calls by key, those of a device in one recording; the fewest bytes that the runs of a name allocated.

    The first run of a kind may fill caches that stay; the least of the runs is what a step sees. `on_card` counts those of a
    CUDA device.
    """

    def in_region(name: str, run: Callable[[], object]) -> None:
        with region(name):
            run()

    def visit_all(keys: Iterable[str]) -> None:
        for key in keys:
            visit(key, in_region)

    by_device: dict[str, list[str]] = {}
    for key, call in calls.items():
        by_device.setdefault(card_of(call) or "", []).append(key)
    on_host = by_device.pop("", [])
    peaks = region_peaks(partial(visit_all, on_host)) if on_host else {}
    for name, keys in by_device.items():
        peaks |= on_card(partial(visit_all, keys), torch.device(name))
    return peaks


def why_not_run(call: OpCall, registry: OpRegistry, max_bytes: int) -> str:
    """Why a call that may take so many bytes must not be run here; empty when it may."""
    row = registry.find(call.op)
    if row is None:
        return "the op table has no row for it"
    if call.is_collective or (row.host and not call.outputs):
        return "it talks to the host or to other processes"
    is_own = call.op.partition(".")[0] in _OWN_NAMESPACES or call.op == FUSED_OP
    if not call.is_pure and not is_own:
        return "it is a custom operation with effects"
    if find_op(call.op) is None:
        return f"torch {torch.__version__} has no such operation"
    for device in sorted(call.devices):
        kind = torch.device(device).type
        if kind not in {"cpu", "cuda"} or (kind == "cuda" and not torch.cuda.is_available()):
            return f"its tensors are on {device!r}, which does not run here"
    # As much as the results is set aside for workspace.
    needed = call.operand_bytes + 2 * call.output_bytes
    if not call.is_view and needed > max_bytes:
        return f"it needs {format_bytes(needed)}, more than the {format_bytes(max_bytes)} it may take"
    return ""


def may_take_bytes(device: torch.device = CPU) -> int:
    """Of the memory of a device that is free now, what one call may take for its operands and results."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        free = torch.cuda.mem_get_info(device)[0] + kept
    else:
        free = host.memory_available_bytes()
    return int(free * _SHARE_OF_FREE_MEMORY)


def most_bytes(calls: Iterable[OpCall]) -> int:
    """Bytes that any one of some calls takes: operands, results, and scratch of as many bytes; views take none."""
    return max((2 * (c.operand_bytes + c.output_bytes) for c in calls if not c.is_view), default=0)


def environment(device: torch.device = CPU) -> str:
    """Everything beside a call that its cost depends on: processor, threads, version and modes of PyTorch, and the step's card.

    A step on the CPU does not ask for cards, which would begin to use them.
    """
    threads = torch.get_num_threads()
    parts = [
        host.cpu_model(),
        f"{threads} thread{'s' if threads > 1 else ''}",
        f"torch {torch.__version__}",
        f"{torch.get_float32_matmul_precision()} matmul precision",
    ]
    if torch.are_deterministic_algorithms_enabled():
        parts.append("deterministic algorithms")
    if device.type == "cuda":
        parts.append(f"{card_in_words(device)}, timed by its events")
    return ", ".join(parts)


def cache_share_bytes() -> int:
    """What the threads of a program have of the processor's last cache, when all its processors are busy."""
    size_bytes, processors = host.last_cache()
    return size_bytes * min(torch.get_num_threads(), processors) // processors


def is_out_of_memory(failure: str) -> bool:
    """Whether a call failed for want of memory, which says nothing about the next time."""
    return "MemoryError" in failure or "allocate memory" in failure or "out of memory" in failure


@contextmanager
def undisturbed(calls: Iterable[OpCall]) -> Iterator[None]:
    """No autocast, random numbers from a fixed seed, on the CPU and where calls run; all as before at the end."""
    cuda_devices = sorted({d for call in calls for d in call.devices if d.startswith("cuda")})
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


def _large(key: str) -> str:
    return f"{key} on large numbers"


def _looked_at(name: str, call: OpCall, maker: OperandMaker, count: Counted) -> OpRecord:
    """Results of a call, whose allocations, and nothing else's, are counted under a name. It runs twice, unless that takes long."""
    results: list[object] = []
    try:
        prepared = PreparedCall(call, maker.operands(call))
        for _ in range(2):
            began = perf_counter()
            count(name, lambda: results.append(prepared.run()))
            facts = prepared.facts(results.pop())
            if perf_counter() - began > LONG_RUN_S:
                break
    except RUN_ERRORS as error:
        return OpRecord(call.op, failure=_text_of(error))
    return OpRecord(call.op, outputs=tuple(facts))


def _timed(seen: OpRecord, call: OpCall, maker: OperandMaker, clock: CallClock) -> OpRecord:
    """The time of a call, away from the recorder, which would slow down the clock's own work as well."""
    try:
        prepared = PreparedCall(call, maker.operands(call))
        if is_on_cuda(call):
            on_card_s, launch_s = prepared.seconds_on_card()
            return replace(seen, seconds=on_card_s, launch_s=launch_s)
        spent_s = prepared.seconds(clock)
        if not is_short(call, spent_s):
            spent_s = prepared.median_seconds(clock, spent_s)
    except RUN_ERRORS as error:
        return OpRecord(call.op, failure=_text_of(error))
    return replace(seen, seconds=spent_s)


def _text_of(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")
