"""Times short calls where they stand: in the order of the program, on made-up operands, with the other calls around them.

A short call that is run again and again alone finds its code, the interpreter's and its operands in the innermost
caches, and takes down to half of what it takes in a program. A long one takes the same in both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import groupby
from statistics import fmean, median
from typing import Final

import torch

from neaptide.cost.call_clock import CallClock
from neaptide.cost.graph_calls import KeyedCall
from neaptide.cost.op_key import OpCall
from neaptide.cost.op_runner import OperandMaker, PreparedCall, is_on_cuda
from neaptide.outcome import LimitGuard, Stopwatch

SHORT_S: Final = 1e-2
"""Calls that take less are timed in the program. A convolutional step of 137 ms in 1, 2 and 4 parts was predicted at 1.02,
1.00 and .98 of what it took; with a limit of 1 ms and 4 MiB at .95, .99 and .98, so parts looked slower than they are."""
_SHORT_BYTES: Final = 24 * 2**20
"""Operands and results of such a call at most; those of all calls are held at the same time."""
_ALL_BYTES: Final = 512 * 2**20
# Of each stretch of the program that is played, calls in front of the first that is wanted.
_LEAD: Final = 16
_ROUNDS: Final = 5
_LEAST_ROUNDS: Final = 2
_ALL_ROUNDS_S: Final = 2.0
"""A long program is played less often, so that all rounds take about so long."""
# What stands in for a long call works on so many bytes, and takes them from the caches.
_SWEPT_BYTES: Final = 4 * 2**20

_Play = tuple[str, Callable[[], object]]
"""Key of a call, empty for a stand-in, and what runs it."""


def seconds_in_program(
    order: Sequence[KeyedCall],
    alone_s: Mapping[str, float],
    wanted: Collection[str],
    clock: CallClock,
    guard: LimitGuard,
) -> dict[str, float]:
    """Mean seconds of a call over its places in the program, by key, for those of `wanted` that are short.

    Plays the program, or of a long one the calls in front of what is wanted, a few times. Which part each call takes is
    told by rounds with a clock at each; how long all take together, by rounds without one between them.

    Args:
        order: the calls of a program.
        alone_s: of each call run alone, by key; those without are left out.
        wanted: keys.
        clock: times calls.
        guard: asked before every round; when it says so, nothing is found.
    """
    short = _short_calls(order, alone_s)
    if not short.keys() & set(wanted):
        return {}
    prepared = _Prepared(short)
    plays = [
        (keyed.key if keyed.key in short else "", prepared.player(keyed.key, alone_s[keyed.key]))
        for keyed in _played(order, set(wanted) & short.keys())
        if keyed.key in alone_s
    ]
    apart: dict[str, list[float]] = defaultdict(list)
    apart_s, together_s = [], []
    number, rounds = 0, _ROUNDS
    while number <= rounds:
        if guard.check_now() is not None:
            return {}
        watch = Stopwatch()
        found = prepared.round_apart(plays, clock)
        whole_s = prepared.round_together(plays, clock)
        if not number:  # the first one fills the caches
            rounds = min(max(int(_ALL_ROUNDS_S / max(watch.seconds(), 1e-9)), _LEAST_ROUNDS), _ROUNDS)
        number += 1
        if number > 1:
            for key, spans in found.items():
                apart[key].append(fmean(spans))
            apart_s.append(sum(map(sum, found.values())))
            together_s.append(whole_s)
    scale = median(together_s) / median(apart_s) if median(apart_s) else 1.0
    return {key: median(spans) * scale for key, spans in apart.items() if key in wanted}


def _short_calls(order: Sequence[KeyedCall], alone_s: Mapping[str, float]) -> dict[str, OpCall]:
    """Calls that are timed in the program, the first ones where not all fit."""
    short: dict[str, OpCall] = {}
    left = _ALL_BYTES
    for keyed in order:
        call = keyed.call
        if keyed.key in short or is_on_cuda(call) or alone_s.get(keyed.key, SHORT_S) >= SHORT_S:
            continue
        nbytes = call.operand_bytes + call.output_bytes
        if call.is_view or (nbytes <= _SHORT_BYTES and nbytes <= left):
            short[keyed.key] = call
            left -= 0 if call.is_view else nbytes
    return short


def _played(order: Sequence[KeyedCall], wanted: Collection[str]) -> list[KeyedCall]:
    """What is wanted, and the calls in front of it."""
    near, distance = [], _LEAD + 1
    for keyed in reversed(order):
        distance = 0 if keyed.key in wanted else distance + 1
        if distance <= _LEAD:
            near.append(keyed)
    return near[::-1]


class _Prepared:
    """Calls with operands, and bytes to sweep the caches with."""

    def __init__(self, calls: Mapping[str, OpCall]) -> None:
        maker = OperandMaker()
        self._prepared = {key: PreparedCall(call, maker.operands(call)) for key, call in calls.items()}
        self._swept = torch.zeros(_SWEPT_BYTES // 4)
        written = [p for p in self._prepared.values() if not p.call.is_pure]
        tensors = [t for p in written for t in p.operands if isinstance(t, torch.Tensor) and not t.is_meta]
        # Whole blocks: an operand may see one element many times, and cannot be written to then.
        blocks = {t.untyped_storage().data_ptr(): _block_of(t) for t in tensors}
        self._kept = [(block, block.clone()) for block in blocks.values()]

    def player(self, key: str, seconds: float) -> Callable[[], object]:
        """What runs a call, or stands in for it."""
        if key in self._prepared:
            return self._prepared[key].run
        part = self._swept if seconds >= SHORT_S else self._swept[: _SWEPT_BYTES // 16]
        return lambda: part.add_(1)

    def round_apart(self, plays: Sequence[_Play], clock: CallClock) -> dict[str, list[float]]:
        """Seconds of each call, by key."""
        self._reset()
        found: dict[str, list[float]] = defaultdict(list)
        for key, run in plays:
            if key:
                found[key].append(clock.seconds(run))
            else:
                run()
        return found

    def round_together(self, plays: Sequence[_Play], clock: CallClock) -> float:
        """Seconds of all calls, with a clock at stand-ins alone."""
        self._reset()
        total_s = 0.0
        for is_call, stretch in groupby(plays, key=lambda play: bool(play[0])):
            runs = [run for _, run in stretch]
            if is_call:
                total_s += clock.seconds(partial(_run_all, runs))
            else:
                _run_all(runs)
        return total_s

    def _reset(self) -> None:
        """Numbers as they were: what is worked on in place over and over ends in denormals, which take long."""
        for block, saved in self._kept:
            block.copy_(saved)


def _block_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes that a tensor lies in, each once."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def _run_all(runs: Sequence[Callable[[], object]]) -> None:
    for run in runs:
        run()
