"""Times short calls where they stand: in the order of the program, on made-up operands, with the other calls around them.

A short call that is run again and again alone finds its code, the interpreter's and its operands in the innermost
caches, and takes down to half of what it takes in a program. A long one takes the same in both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from typing import Final

import torch

from neaptide.cost.call_clock import CallClock
from neaptide.cost.graph_calls import PlacedCall
from neaptide.cost.op_key import OpCall
from neaptide.cost.op_runner import OperandMaker, PreparedCall
from neaptide.cost.op_session import SHORT_S, is_short, most_bytes
from neaptide.cost.used_memory import used_memory
from neaptide.outcome import LimitGuard, Stopwatch

_ALL_BYTES: Final = 512 * 2**20
# Of each stretch of the program that is played, calls in front of the first that is wanted.
_LEAD: Final = 16
_ROUNDS: Final = 5
_LEAST_ROUNDS: Final = 2
_ALL_ROUNDS_S: Final = 2.0
"""A long program is played less often, so that all rounds take about so long."""
# What stands in for a long call works on so many bytes, and takes them from the caches.
_SWEPT_BYTES: Final = 4 * 2**20

_LEAST_TOUCHED_BYTES: Final = 64 * 2**10
"""Smaller operands come from any cache in no time."""


@dataclass(frozen=True, slots=True)
class _Play:
    """A call of the program.

    Attributes:
        key: of the call; empty for a stand-in.
        near: blocks that must be in the caches before it runs.
        times: how many times the program runs it like this.
    """

    key: str
    run: Callable[[], object]
    near: tuple[torch.Tensor, ...] = ()
    times: int = 1


_Spans = dict[str, list[tuple[float, int]]]
"""By key of a call, the seconds of each that was played, and how many times the program runs it like this."""


def seconds_in_program(
    order: Sequence[PlacedCall],
    alone_s: Mapping[str, float],
    wanted: Collection[str],
    clock: CallClock,
    guard: LimitGuard,
) -> dict[str, float]:
    """Mean seconds of a call over all its runs in the program, by key, for those of `wanted` that are short.

    Plays the program, or of a long one the calls in front of what is wanted, a few times. Which part each call takes is
    told by rounds with a clock at each; how long all take together, by rounds without one between them.

    Args:
        alone_s: of each call run alone, by key; those without are left out.
        guard: asked before every round; when it says so, nothing is found.
    """
    short = _short_calls(order, alone_s)
    if not short.keys() & set(wanted):
        return {}
    prepared = _Prepared(short)
    plays = [
        prepared.play(placed, alone_s[placed.keyed.key])
        for placed in _played(order, set(wanted) & short.keys())
        if placed.keyed.key in alone_s
    ]
    with used_memory(most_bytes(short.values())):
        found = _rounds(prepared, plays, clock, guard)
    return {key: seconds for key, seconds in found.items() if key in wanted}


def _rounds(
    prepared: _Prepared, plays: Sequence[_Play], clock: CallClock, guard: LimitGuard
) -> dict[str, float]:
    """Mean seconds of each call over its runs, the median of a few rounds; nothing once the guard says so."""
    apart: dict[str, list[float]] = defaultdict(list)
    apart_s, together_s = [], []
    number, rounds = 0, _ROUNDS
    while number <= rounds:
        if guard.check_now() is not None:
            return {}
        watch = Stopwatch()
        found = prepared.round_apart(plays, clock)
        if not number:  # the first one fills the caches
            rounds = min(max(int(_ALL_ROUNDS_S / max(2 * watch.seconds(), 1e-9)), _LEAST_ROUNDS), _ROUNDS)
        else:
            together_s.append(prepared.round_together(plays, clock))
            for key, spans in found.items():
                apart[key].append(fmean(*zip(*spans, strict=True)))
            apart_s.append(sum(seconds for spans in found.values() for seconds, _ in spans))
        number += 1
    scale = median(together_s) / median(apart_s) if median(apart_s) else 1.0
    return {key: median(spans) * scale for key, spans in apart.items()}


def _short_calls(order: Sequence[PlacedCall], alone_s: Mapping[str, float]) -> dict[str, OpCall]:
    short: dict[str, OpCall] = {}
    left = _ALL_BYTES
    for keyed in (placed.keyed for placed in order):
        call = keyed.call
        if keyed.key in short or not is_short(call, alone_s.get(keyed.key, SHORT_S)):
            continue
        nbytes = 0 if call.is_view else call.operand_bytes + call.output_bytes
        if nbytes <= left:
            short[keyed.key] = call
            left -= nbytes
    return short


def _played(order: Sequence[PlacedCall], wanted: Collection[str]) -> list[PlacedCall]:
    near, distance = [], _LEAD + 1
    for placed in reversed(order):
        distance = 0 if placed.keyed.key in wanted else distance + 1
        if distance <= _LEAD:
            near.append(placed)
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

    def play(self, placed: PlacedCall, alone_s: float) -> _Play:
        key = placed.keyed.key
        if key not in self._prepared:
            part = self._swept if alone_s >= SHORT_S else self._swept[: _SWEPT_BYTES // 16]
            return _Play("", lambda: part.add_(1))
        call = self._prepared[key]
        near = () if call.call.is_view else _touched_blocks(call, placed.near)
        return _Play(key, call.run, near, placed.times)

    def round_apart(self, plays: Sequence[_Play], clock: CallClock) -> _Spans:
        self._reset()
        found: _Spans = defaultdict(list)
        for play in plays:
            _touch(play.near)
            if play.key:
                found[play.key].append((clock.seconds(play.run), play.times))
            else:
                play.run()
        return found

    def round_together(self, plays: Sequence[_Play], clock: CallClock) -> float:
        """Seconds of all calls, with a clock at what else has to be run alone."""
        self._reset()
        total_s = 0.0
        for stretch in _stretches(plays):
            _touch(stretch[0].near)
            runs = [play.run for play in stretch]
            if stretch[0].key:
                total_s += clock.seconds(partial(_run_all, runs))
            else:
                _run_all(runs)
        return total_s

    def _reset(self) -> None:
        """Numbers as they were: what is worked on in place over and over ends in denormals, which take long."""
        for block, saved in self._kept:
            block.copy_(saved)


def _stretches(plays: Sequence[_Play]) -> Iterator[list[_Play]]:
    """Plays between which nothing has to be done: calls, or one stand-in."""
    stretch: list[_Play] = []
    for play in plays:
        if stretch and (play.near or not play.key or not stretch[0].key):
            yield stretch
            stretch = []
        stretch.append(play)
    if stretch:
        yield stretch


def _touched_blocks(prepared: PreparedCall, slots: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    """The blocks of some operands, each once, as numbers of eight bytes; small ones are left out."""
    tensors = [
        t for slot in slots if isinstance(t := prepared.operands[slot], torch.Tensor) and not t.is_meta
    ]
    blocks = {t.untyped_storage().data_ptr(): _block_of(t) for t in tensors if t.layout == torch.strided}
    return tuple(
        block[: block.numel() // 8 * 8].view(torch.int64)
        for block in blocks.values()
        if block.numel() >= _LEAST_TOUCHED_BYTES
    )


def _touch(blocks: Iterable[torch.Tensor]) -> None:
    for block in blocks:
        block.add_(0)


def _block_of(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def _run_all(runs: Sequence[Callable[[], object]]) -> None:
    for run in runs:
        run()
