"""Restarts of the valley search: many short runs with other keys and rules find what one long run does not.

On the hard instances the run that succeeds is mostly one that hardly goes back. With one of the two rules, how often
each section failed carries over from run to run, so that later runs begin where earlier ones died: for good in every
other round, fading in those between. With the other rule every run begins anew. Each alone misses some of the hard
instances.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Final

from neaptide.layout.exact.strip import Decision, Strip, Verdict
from neaptide.layout.exact.valley import SectionRule, ValleySearch
from neaptide.outcome import LimitGuard

_RULES: Final = (SectionRule.TIGHT, SectionRule.OPTIONS)
_NOISE: Final = 0.3  # keys of a run are multiplied by 1 +- this
_EXTRA_NODES: Final = 100  # of a run of the first round, beyond one for each rectangle
_GROWTH: Final = 1.2  # of those, from round to round
_FADING: Final = 0.7  # what counts of earlier failures in every other round
_KEYS: Final = ("width", "contention", "area", "size")


def decide(
    strip: Strip,
    limits: list[int],
    guard: LimitGuard,
    *,
    seed: int = 0,
    max_nodes: int | None = None,
) -> Decision:
    """Whether a strip fits below its limits, by restarts of the valley search with growing node limits.

    Complete: without a limit it ends, because a run with enough nodes is exhaustive.

    Args:
        limits: by rectangle, the highest top.
        guard: a unit of work is a node.
        max_nodes: of all runs together.
    """
    lasting, fading = [0.0] * strip.sections, [0.0] * strip.sections
    runs_each_round = len(_KEYS) * len(_RULES)
    nodes = 0
    for number, (order, rule, limit) in enumerate(_runs(strip, limits, seed)):
        most = limit if max_nodes is None else min(limit, max_nodes - nodes)
        if rule is not SectionRule.TIGHT:
            failures = [0.0] * strip.sections
        elif number // runs_each_round % 2:
            fading = failures = [_FADING * count for count in fading]
        else:
            failures = lasting
        decision = ValleySearch(strip, limits, order, rule, failures).run(guard, most)
        nodes += decision.nodes
        if decision.verdict is not Verdict.OUT_OF_BUDGET:
            return Decision(decision.verdict, decision.offsets, nodes)
        if guard.exhausted(0) is not None or (max_nodes is not None and nodes >= max_nodes):
            break
    return Decision(Verdict.OUT_OF_BUDGET, None, nodes)


def _runs(strip: Strip, limits: list[int], seed: int) -> Iterator[tuple[list[int], SectionRule, int]]:
    """Order, rule and node limit of one run after another, without end."""
    rng = random.Random(seed)  # noqa: S311 - a reproducible stream, no secret
    keys = _keys(strip)
    extra = float(_EXTRA_NODES)
    while True:
        for rule, name in product(_RULES, _KEYS):
            key = [value * (1 + rng.uniform(-_NOISE, _NOISE)) for value in keys[name]]
            yield order_by(strip, limits, key), rule, len(strip) + int(extra)
        extra *= _GROWTH


def _keys(strip: Strip) -> dict[str, list[float]]:
    totals = strip.totals()
    spans = list(zip(strip.firsts, strip.lasts, strip.sizes, strip.paddings, strict=True))
    return {
        "width": [float(last - first) for first, last, _, _ in spans],
        "contention": [float(max(totals[first:last])) for first, last, _, _ in spans],
        "area": [float((last - first) * size) for first, last, size, _ in spans],
        "size": [float(size) for _, _, size, _ in spans],
    }


def order_by(strip: Strip, limits: list[int], key: list[float]) -> list[int]:
    """Rectangles by falling key, identical together: each group counts with its first. O(n log n)."""
    value: dict[tuple[int, int, int, int], float] = {}
    kinds = list(zip(strip.firsts, strip.lasts, strip.sizes, limits, strict=True))
    for kind, number in zip(kinds, key, strict=True):
        value.setdefault(kind, number)
    return sorted(range(len(strip)), key=lambda i: (-value[kinds[i]], kinds[i], i))
