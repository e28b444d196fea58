"""Buffers of known families for layout problems, as plain rows: for tests, brute force and benchmarks.

A row has the fields of a layout's buffer by name. Where a family has a known smallest arena, its function says so.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

_LARGEST = 100
_TIGHTEST = (
    1 / 4
)  # a cut leaves at least this share of the longer side on either side of it, where there is room
_OF_A_PIPELINED_LAYER = 10  # buffers: four activations with their gradients, a weight's gradient, scratch

_Piece: TypeAlias = tuple[int, int, int, int]  # start, end, low, high


class LayoutRow(NamedTuple):
    """One buffer, live on the half-open steps `[start, end)`."""

    name: str
    start: int
    end: int
    nbytes: int
    alignment: int = 1
    kind: str = ""


def random_layout(
    buffers: int,
    seed: int,
    *,
    steps: int = 20,
    largest: int = _LARGEST,
    alignments: Sequence[int] = (1,),
) -> list[LayoutRow]:
    """Lifetimes, sizes and alignments drawn evenly and independently. O(buffers)."""
    rng = _generator("random", seed)
    rows = []
    for k in range(buffers):
        start, end = sorted(rng.sample(range(steps + 1), 2))
        rows.append(LayoutRow(f"b{k}", start, end, rng.randint(1, largest), rng.choice(alignments)))
    return rows


def perfect(buffers: int, seed: int, *, steps: int = 1000, arena_bytes: int = 1 << 20) -> list[LayoutRow]:
    """A rectangle of steps x bytes in guillotine cuts: `arena_bytes` is live at every step, and is enough.

    Each cut halves the largest piece, along steps or along bytes. O(buffers log buffers).

    Args:
        buffers: pieces; fewer where no piece can be cut any more.
        seed: of all choices.
        steps: of the whole.
        arena_bytes: of the whole: the smallest arena there is.
    """
    rng = _generator("perfect", seed)
    whole: _Piece = (0, steps, 0, arena_bytes)
    pieces = [(-_area(whole), whole)]
    while len(pieces) < buffers:
        start, end, low, high = pieces[0][1]
        if end - start < 2 and high - low < 2:
            break
        if high - low < 2 or (end - start >= 2 and rng.random() < 1 / 2):
            cut = _cut(rng, start, end)
            halves: tuple[_Piece, ...] = ((start, cut, low, high), (cut, end, low, high))
        else:
            cut = _cut(rng, low, high)
            halves = ((start, end, low, cut), (start, end, cut, high))
        heapq.heappop(pieces)
        for piece in halves:
            heapq.heappush(pieces, (-_area(piece), piece))
    return _shuffled(rng, pieces)


def staggered(buffers: int, seed: int, *, steps: int = 1000, arena_bytes: int = 1 << 20) -> list[LayoutRow]:
    """A rectangle of steps x bytes in pinwheels: as `perfect`, without a cut from side to side, and harder.

    A pinwheel is four pieces around a fifth, so that lifetimes overlap in a ring; the largest piece is replaced by
    a pinwheel again and again. O(buffers log buffers).

    Args:
        buffers: pieces, down to the next number of the form 4 k + 1; fewer where no piece is large enough.
        seed: of all choices.
        steps: of the whole.
        arena_bytes: of the whole: the smallest arena there is.
    """
    rng = _generator("staggered", seed)
    whole: _Piece = (0, steps, 0, arena_bytes)
    pieces = [(-_area(whole), whole)]
    too_small: list[tuple[int, _Piece]] = []
    while pieces and len(pieces) + len(too_small) + 4 <= buffers:
        entry = heapq.heappop(pieces)
        start, end, low, high = entry[1]
        if min(end - start, high - low) < 3:
            too_small.append(entry)
            continue
        for piece in _pinwheel(rng, *entry[1]):
            heapq.heappush(pieces, (-_area(piece), piece))
    pieces += too_small
    return _shuffled(rng, pieces)


def nested(buffers: int, seed: int, *, largest: int = _LARGEST) -> list[LayoutRow]:
    """Lifetimes of a stack: what begins later ends earlier or begins after the end. Live bytes are enough. O(buffers)."""
    rng = _generator("nested", seed)
    opened: list[tuple[int, int]] = []
    rows: list[LayoutRow] = []
    begun = 0
    for step in range(2 * buffers):
        if begun < buffers and (not opened or rng.random() < 1 / 2):
            opened.append((begun, step))
            begun += 1
        else:
            number, start = opened.pop()
            rows.append(LayoutRow(f"b{number}", start, step, rng.randint(1, largest)))
    return rows


def equal_sizes(buffers: int, seed: int, *, steps: int = 20, nbytes: int = 64) -> list[LayoutRow]:
    """Random lifetimes, one size: first fit by start needs no more than live bytes. O(buffers)."""
    return [row._replace(nbytes=nbytes) for row in random_layout(buffers, seed, steps=steps)]


def training_shaped(buffers: int, seed: int, *, alignment: int = 1) -> list[LayoutRow]:
    """The shape of a training step: a forward that saves, a backward that frees in reverse. O(buffers log buffers).

    A layer has an operation of the forward and two of the backward. It saves an activation of one of several size
    classes, odd sizes among them, and often a mask or statistics; its backward makes a gradient of the activation,
    and of a weight, which an update right after it uses. One layer in eight has a skip connection, whose gradient
    waits for the layer at its other end. Temporaries of a few steps and scratch of one make up the number.

    Args:
        buffers: exactly so many, at least 8.
        seed: of all choices.
        alignment: of all buffers.
    """
    rng = _generator("training", seed)
    layers = max(1, buffers // 8)
    last = 3 * layers
    classes = [rng.randint(3, 9) << rng.randint(10, 18) for _ in range(max(4, layers // 200))]
    shapes = [classes[min(k * len(classes) // layers, len(classes) - 1)] for k in range(layers)]
    spans: list[tuple[str, int, int, int]] = []
    for layer, size in enumerate(shapes):
        backward = last - 2 * layer - 2
        held = _odd(rng, size >> rng.choice((0, 0, 0, 1, 2)))
        spans.append(("activation", layer, backward + 2, held))
        if rng.random() < 1 / 2:
            spans.append(("activation", layer, backward + 1, _odd(rng, max(64, size >> rng.randint(3, 10)))))
        spans.append(("gradient", backward, min(backward + 4, last), held))
        weight = _odd(rng, rng.choice(classes) >> rng.randint(0, 3))
        spans.append(("gradient", backward + 1, min(backward + 3, last), weight))
        if layer >= 8 and rng.random() < 1 / 8:
            producer = layer - rng.randint(2, min(layer, 64))
            spans.append(("gradient", backward + 1, last - 2 * producer - 1, _odd(rng, shapes[producer])))
    del spans[buffers:]
    while len(spans) < buffers:
        start = rng.randrange(last)
        scratch = rng.random() < 1 / 4
        end = start + 1 if scratch else min(start + rng.randint(2, 5), last)
        nearby = shapes[start if start < layers else (last - start - 1) // 2]
        size = _odd(rng, nearby >> rng.randint(0, 4))
        spans.append(("workspace" if scratch else "temporary", start, max(end, start + 1), size))
    return _in_order(spans, alignment)


def pipelined(
    buffers: int, seed: int, *, layers: int = 6, in_flight: int = 4, alignment: int = 1
) -> list[LayoutRow]:
    """A pipelined training step, harder than `training_shaped`: what is made first is freed first. O(buffers log buffers).

    Micro-batches of different lengths pass through the layers of one pipeline stage, one forward after one backward,
    with several in flight: activations of the later ones are made while those of the first are freed, so that nothing
    nests. Weight gradients wait for the end of their backward.

    Args:
        buffers: exactly so many; micro-batches follow from it, temporaries make up the number.
        seed: of all choices.
        layers: of the stage.
        in_flight: forwards that run before the first backward.
        alignment: of all buffers.
    """
    rng = _generator("pipelined", seed)
    widths = [rng.randint(24, 160) * 512 for _ in range(layers)]
    count = max(1, buffers // (layers * _OF_A_PIPELINED_LAYER + layers))
    forward, backward = 4 * layers, 8 * layers  # steps
    began: dict[tuple[str, int], int] = {}
    now = 0
    for turn in range(count + in_flight):
        if turn >= in_flight:
            began["backward", turn - in_flight] = now
            now += backward
        if turn < count:
            began["forward", turn] = now
            now += forward
    spans: list[tuple[str, int, int, int]] = []
    for batch in range(count):
        length = rng.choice((7, 9, 12, 14, 16))
        done = began["backward", batch] + backward
        for layer, width in enumerate(widths):
            make = began["forward", batch] + 4 * layer
            free = done - 8 * layer
            unit = width * length // 16
            for op, size in enumerate((unit, unit, 4 * unit, rng.choice((2, 3, 5)) * unit // 2)):
                held = _odd(rng, size)
                spans.append(("activation", make + op, free - 2 * op, held))
                first = free - 2 * op - 2
                spans.append(("gradient", first, min(first + rng.randint(2, 5), now), held))
            spans.append(("gradient", free - 2, done, _odd(rng, width)))
            at = free - rng.randint(1, 8)
            spans.append(("workspace", at, at + 1, _odd(rng, 4 * unit)))
    del spans[buffers:]
    while len(spans) < buffers:
        start = rng.randrange(now)
        end = min(start + rng.randint(2, 6), now)
        spans.append(("temporary", start, end, _odd(rng, rng.choice(widths) >> rng.randint(0, 3))))
    return _in_order(spans, alignment)


def _in_order(spans: list[tuple[str, int, int, int]], alignment: int) -> list[LayoutRow]:
    """Rows by start, from (kind, start, end, bytes)."""
    spans.sort(key=lambda span: span[1])
    return [
        LayoutRow(f"{kind}{number}", start, end, size, alignment, kind)
        for number, (kind, start, end, size) in enumerate(spans)
    ]


def _generator(family: str, seed: int) -> random.Random:
    return random.Random(f"layout {family} {seed}")


def _odd(rng: random.Random, size: int) -> int:
    """The size, or one time in three a few bytes more: sizes of real programs are not all round."""
    return size + rng.randint(1, 64) if rng.random() < 1 / 3 else size


def _area(piece: _Piece) -> int:
    start, end, low, high = piece
    return (end - start) * (high - low)


def _cut(rng: random.Random, low: int, high: int) -> int:
    margin = max(1, int((high - low) * _TIGHTEST))
    return rng.randint(low + margin, high - margin)


def _pinwheel(rng: random.Random, start: int, end: int, low: int, high: int) -> list[_Piece]:
    first, second = sorted(rng.sample(range(start + 1, end), 2))
    lower, upper = sorted(rng.sample(range(low + 1, high), 2))
    return [
        (start, second, low, lower),
        (second, end, low, upper),
        (first, end, upper, high),
        (start, first, lower, high),
        (first, second, lower, upper),
    ]


def _shuffled(rng: random.Random, pieces: list[tuple[int, _Piece]]) -> list[LayoutRow]:
    rng.shuffle(pieces)
    return [
        LayoutRow(f"b{k}", start, end, high - low) for k, (_, (start, end, low, high)) in enumerate(pieces)
    ]
