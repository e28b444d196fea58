"""Runs one call alone on made-up operands, and looks at what it returned and how long it took."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median
from typing import Any, Final

import torch

from neaptide.cost._torch_private import direct_call, has_argument, keep_busy, storage_identity
from neaptide.cost.cards.cuda_card import seconds_between, timing_events
from neaptide.cost.op_key import OpCall, Operand, OutputFacts, index_limits, lengths, spans
from neaptide.cost.timing import generator_ops  # noqa: F401 - registers them
from neaptide.cost.timing.call_clock import CallClock
from neaptide.ir.values import DTYPE_BYTES
from neaptide.kernels.fused import by_output, fused_kernel, handed, run_fused
from neaptide.ops.fused import FUSED_OP

LONG_RUN_S: Final = 0.05
"""A call that takes this long is not run a second time to see what it allocates."""
_REPEATS: Final = 5
_REPEATED_S: Final = 0.2
"""So many times, and about so long, a call is repeated at most to take the median."""
_LEAST_RUNS: Final = 2
_MOST_RUNS: Final = 30
_RUNS_S: Final = 2e-3
_ROUNDS: Final = 2
_MARGIN: Final = 1.5
_LONGEST_BUSY_S: Final = 5e-3
"""On a card a call runs so many times in a row, or for about so long, while a kernel before it keeps the card busy."""
_PATTERN_LENGTH: Final = 1 << 16
_SEED: Final = 0


class OperandMaker:
    """Makes tensors of given geometry; keeps nothing but a small pattern of numbers.

    Floats are in [0.25, 1.25), times a magnitude: no denormals, no domain errors. Masks are all true, integers zero unless
    they index something: those are spread over their table, since one row read again and again stays in the cache.
    """

    def __init__(self, magnitude: float = 1.0) -> None:
        self._random = torch.Generator().manual_seed(_SEED)
        self._pattern = (torch.rand(_PATTERN_LENGTH, generator=self._random) + 0.25) * magnitude

    def operands(self, call: OpCall) -> list[Any]:
        """Tensors and numbers for the operands of a call, by slot.

        Opaque operands are made by running their producers, whose other results are dropped.
        """
        made: list[Any] = []
        blocks: dict[int, torch.Tensor] = {}
        limits, fixed = index_limits(call), lengths(call)
        producers = dict(call.producers)
        # A view must find the bytes that its result shows, too.
        nbytes = spans((*call.operands, *(call.outputs if call.is_view else ())))
        for slot, operand in enumerate(call.operands):
            if operand.is_host_scalar:
                made.append(_NUMBERS[operand.dtype])
            elif operand.shape_only:
                # As in a lowered program: only the shape is looked at.
                dtype = _dtype(operand.dtype)
                made.append(torch.empty_strided(operand.shape, operand.strides, dtype=dtype, device="meta"))
            elif operand.made_by:
                producer = producers[operand.made_by]
                result = PreparedCall(producer, self.operands(producer)).run()
                made.append(flat_results(producer, result)[operand.made_at])
            else:
                if operand.group not in blocks:
                    numel = -(-nbytes[operand.group] // DTYPE_BYTES[operand.dtype])
                    block = torch.empty(numel, dtype=_dtype(operand.dtype), device=operand.device)
                    if not call.is_view:  # a view never looks at the numbers, so its pages stay untouched
                        self._fill(block, limits.get(slot), fixed.get(slot, 0))
                    blocks[operand.group] = block
                made.append(_window(blocks[operand.group], operand))
        return made

    def _fill(self, block: torch.Tensor, limit: int | None, number: int) -> None:
        if block.dtype == torch.bool:
            block.fill_(value=True)
        elif block.is_floating_point() or block.is_complex():
            pattern = self._pattern.to(device=block.device, dtype=block.dtype)
            whole = block.numel() // _PATTERN_LENGTH * _PATTERN_LENGTH
            block[:whole].view(-1, _PATTERN_LENGTH).copy_(pattern)
            block[whole:].copy_(pattern[: block.numel() - whole])
        elif limit is None:
            block.fill_(number)
        else:
            block.copy_(torch.randint(0, limit, (block.numel(),), generator=self._random))


class PreparedCall:
    """A call with operands, ready to run any number of times; in-place operations work on the operands."""

    def __init__(self, call: OpCall, operands: list[Any]) -> None:
        self.call, self.operands = call, operands
        function = find_op(call.op)
        self._direct = direct_call(function)
        if call.op == FUSED_OP:  # compiled before anything is timed or counted
            fused_kernel(str(call.args[0]))
        self._args = [handed(a, operands) for a in call.args]
        self._kwargs = {k: handed(a, operands) for k, a in call.kwargs}
        stands_in = any(o.shape_only for o in call.operands)
        if stands_in and self._kwargs.get("device") is None and has_argument(function, "device"):
            devices = [o.device for o in call.outputs if not o.is_host_scalar]
            self._kwargs["device"] = torch.device(devices[0] if devices else "cpu")

    def run(self) -> Any:
        """What the operation returns."""
        return self._direct(*self._args, **self._kwargs)

    @property
    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """What the operation is called with, by position and by name."""
        return self._args, self._kwargs

    def facts(self, result: Any) -> list[OutputFacts | None]:
        """What a result shows, by output; None for host scalars and what was not made."""
        slot_of = {
            storage_identity(t.untyped_storage()): slot
            for slot, t in reversed(list(enumerate(self.operands)))
            if isinstance(t, torch.Tensor) and t.device.type != "meta"
        }
        seen: dict[int, int] = {}
        found: list[OutputFacts | None] = []
        for position, tensor in enumerate(flat_results(self.call, result)):
            if not isinstance(tensor, torch.Tensor):
                found.append(None)
                continue
            storage = tensor.untyped_storage()
            identity = storage_identity(storage)
            found.append(
                OutputFacts(
                    nbytes=storage.nbytes(),
                    operand=slot_of.get(identity),
                    alias_of=seen.get(identity),
                    dtype=str(tensor.dtype).removeprefix("torch."),
                    shape=tuple(tensor.shape),
                )
            )
            seen.setdefault(identity, position)
        return found

    def seconds(self, clock: CallClock) -> float:
        """Seconds of one run on the CPU; the result is dropped within."""
        return clock.seconds(self.run)

    def seconds_on_card(self) -> tuple[float, float]:
        """Seconds of one run on its card, and those in which the host hands it over, as means of runs in a row.

        The card is kept busy until the host has handed over all of them, so that it never waits for the host in between. A call
        that waits for the card itself has its whole time in both.
        """
        name = card_of(self.call)
        assert name is not None, "asked only of calls on a card"
        with torch.cuda.device(torch.device(name)):
            self.run()
            torch.cuda.synchronize()
            _, first_s = self._handed_over(1, 0.0)
            count = max(_LEAST_RUNS, min(_MOST_RUNS, int(_RUNS_S / max(first_s, 1e-6))))
            # A card that sleeps for as long as the slowest run took, several times.
            return min(self._handed_over(count, _MARGIN * count * first_s) for _ in range(_ROUNDS))

    def _handed_over(self, count: int, busy_s: float) -> tuple[float, float]:
        begin, end = timing_events()
        keep_busy(min(busy_s, _LONGEST_BUSY_S))
        begin.record()
        before = time.perf_counter()
        for _ in range(count):
            self.run()
        host_s = time.perf_counter() - before
        end.record()
        return seconds_between(begin, end) / count, host_s / count

    def median_seconds(self, clock: CallClock, first_s: float) -> float:
        """Median of a first run that took `first_s` and a few more."""
        more = min(_REPEATS, int(_REPEATED_S / max(first_s, 1e-6)))
        return median([first_s, *(self.seconds(clock) for _ in range(more))])


def flat_results(call: OpCall, result: Any) -> list[Any]:
    """Results in the order of the node's outputs."""
    return by_output(call.results, len(call.outputs), result)


def find_op(op: str) -> Any:
    """The callable of a registry name; None where this torch has no such operation."""
    if op == FUSED_OP:
        return run_fused
    parts = op.split(".", 2)
    found: Any = torch.ops
    for part in parts:
        found = getattr(found, part, None)
        if found is None:
            return None
    return found if len(parts) == 3 else None


def card_of(call: OpCall) -> str | None:
    """The CUDA device of a call, the first by name; None where none of its tensors is on one."""
    return min((device for device in call.devices if device.startswith("cuda")), default=None)


def is_on_cuda(call: OpCall) -> bool:
    """Whether any tensor of a call is on a CUDA device."""
    return card_of(call) is not None


# A number that is known at run time only: neither zero nor one, which some operations treat apart.
_NUMBERS: Final[Mapping[str, Any]] = {"float64": 0.5, "int64": 2, "bool": True}


def _window(block: torch.Tensor, operand: Operand) -> torch.Tensor:
    dtype = _dtype(operand.dtype)
    whole_bytes = block.nbytes - block.nbytes % dtype.itemsize
    flat = block if block.dtype == dtype else block.view(torch.uint8)[:whole_bytes].view(dtype)
    return flat.as_strided(operand.shape, operand.strides, operand.offset)


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name)
    assert isinstance(found, torch.dtype)
    return found
