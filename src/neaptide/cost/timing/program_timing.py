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

from neaptide.cost.op_key import OpCall
from neaptide.cost.timing.call_clock import CallClock, used_memory
from neaptide.cost.timing.graph_calls import PlacedCall
from neaptide.cost.timing.op_runner import OperandMaker, PreparedCall
from neaptide.cost.timing.op_session import SHORT_S, is_short, most_bytes
from neaptide.outcome import Stopwatch

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
    """A call of the program, which has a key, or what stands in for one.

    Attributes:
        near: blocks that must be in the caches before it runs.
        times: how many times the program runs it like this.
    """

    key: str
    run: Callable[[], object]
    near: tuple[torch.Tensor, ...] = ()
    times: int = 1


def seconds_in_program(
    order: Sequence[PlacedCall], alone_s: Mapping[str, float], wanted: Collection[str], clock: CallClock
) -> dict[str, float]:
    """Mean seconds of a call over all its runs in the program, by key, for those of `wanted` that are short.

    Plays the program, or of a long one the calls in front of what is wanted, a few times. Which part each call takes is
    told by rounds with a clock at each; how long all take together, by rounds without one between them. Calls without
    seconds in `alone_s` are left out.
    """
    short = _short_calls(order, alone_s)
    aimed_at = short.keys() & set(wanted)
    if not aimed_at:
        return {}
    prepared = _PreparedCalls(short)
    plays = [
        prepared.play(placed, alone_s[placed.keyed.key])
        for placed in _played(order, aimed_at)
        if placed.keyed.key in alone_s
    ]
    with used_memory(most_bytes(short.values())):
        found = _rounds(prepared, plays, clock)
    return {key: found[key] for key in aimed_at if key in found}


def _rounds(prepared: _PreparedCalls, plays: Sequence[_Play], clock: CallClock) -> dict[str, float]:
    """Mean seconds of each call over its runs, the median of a few rounds."""
    watch = Stopwatch()
    prepared.round_apart(plays, clock)  # fills the caches
    rounds = min(max(int(_ALL_ROUNDS_S / max(2 * watch.seconds(), 1e-9)), _LEAST_ROUNDS), _ROUNDS)
    means: dict[str, list[float]] = defaultdict(list)
    apart_s, together_s = [], []
    for _ in range(rounds):
        spans = prepared.round_apart(plays, clock)
        together_s.append(prepared.round_together(plays, clock))
        apart_s.append(sum(spans))
        by_key: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for play, seconds in zip((play for play in plays if play.key), spans, strict=True):
            by_key[play.key].append((seconds, play.times))
        for key, seen in by_key.items():
            means[key].append(fmean(*zip(*seen, strict=True)))
    scale = median(together_s) / median(apart_s) if median(apart_s) else 1.0
    return {key: median(found) * scale for key, found in means.items()}


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


class _PreparedCalls:
    """Calls with operands, and bytes to sweep the caches with."""

    def __init__(self, calls: Mapping[str, OpCall]) -> None:
        maker = OperandMaker()
        self._prepared = {key: PreparedCall(call, maker.operands(call)) for key, call in calls.items()}
        self._swept = torch.zeros(_SWEPT_BYTES // 4)
        # Whole blocks: an operand may see one element many times, and cannot be written to then.
        written = _blocks(t for p in self._prepared.values() if not p.call.is_pure for t in p.operands)
        self._kept = [(block, block.clone()) for block in written]

    def play(self, placed: PlacedCall, alone_s: float) -> _Play:
        key = placed.keyed.key
        if key not in self._prepared:
            part = self._swept if alone_s >= SHORT_S else self._swept[: _SWEPT_BYTES // 16]
            return _Play("", lambda: part.add_(1))
        call = self._prepared[key]
        near = () if call.call.is_view else _touchable(call.operands[slot] for slot in placed.near)
        return _Play(key, call.run, near, placed.times)

    def round_apart(self, plays: Sequence[_Play], clock: CallClock) -> list[float]:
        """Seconds of each call."""
        self._reset()
        found = []
        for play in plays:
            _touch(play.near)
            if play.key:
                found.append(clock.seconds(play.run))
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


def _touchable(operands: Iterable[object]) -> tuple[torch.Tensor, ...]:
    """The blocks of some operands as numbers of eight bytes; small ones are left out."""
    return tuple(
        block[: block.numel() // 8 * 8].view(torch.int64)
        for block in _blocks(operands)
        if block.numel() >= _LEAST_TOUCHED_BYTES
    )


def _touch(blocks: Iterable[torch.Tensor]) -> None:
    for block in blocks:
        block.add_(0)


def _blocks(operands: Iterable[object]) -> list[torch.Tensor]:
    """The bytes of those operands that are tensors with a storage, each block once."""
    tensors = [
        t for t in operands if isinstance(t, torch.Tensor) and not t.is_meta and t.layout == torch.strided
    ]
    whole = {
        t.untyped_storage().data_ptr(): torch.empty(0, dtype=torch.uint8, device=t.device).set_(
            t.untyped_storage()
        )
        for t in tensors
    }
    return list(whole.values())


def _run_all(runs: Sequence[Callable[[], object]]) -> None:
    for run in runs:
        run()
