"""Random small ordering problems, all their orders, and their profiles: what the reductions are held against."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

from neaptide.schedule.order import steps
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.order.regions.segments import Segment
from neaptide.schedule.order.steps import Coupling, Steps


def from_edges(
    nbytes: Sequence[int], edges: Sequence[tuple[int, int]], workspace: Sequence[int] | None = None
) -> OrderProblem:
    """One tensor per op, read by all its successors; what nobody reads is kept."""
    tails = {tail for tail, _ in edges}
    storages = tuple(OrderStorage(f"t{i}", size, output=i not in tails) for i, size in enumerate(nbytes))
    return OrderProblem(
        storages,
        tuple(
            OrderOp(
                f"n{i}",
                tuple(sorted({tail for tail, head in edges if head == i})),
                (i,),
                workspace[i] if workspace else 0,
            )
            for i in range(len(nbytes))
        ),
    )


def linear_extensions(predecessors: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    done: list[int] = []

    def go(left: frozenset[int]) -> Iterator[tuple[int, ...]]:
        if not left:
            yield tuple(done)
        for item in sorted(left):
            if left.isdisjoint(predecessors[item]):
                done.append(item)
                yield from go(left - {item})
                done.pop()

    return go(frozenset(range(len(predecessors))))


def all_orders(problem: OrderProblem) -> Iterator[tuple[int, ...]]:
    return linear_extensions(problem.predecessors)


def best_order(problem: OrderProblem) -> tuple[int, ...]:
    return min(all_orders(problem), key=lambda order: evaluate_order(problem, order).peak_bytes)


def best_peak(problem: OrderProblem) -> int:
    return evaluate_order(problem, best_order(problem)).peak_bytes


def profile_of(problem: OrderProblem, order: Sequence[int]) -> list[int]:
    """Valley, hill, ..., valley of an order."""
    played = steps.profile(steps.to_steps(problem), order)
    points = [played.between[0]]
    for hill, level in zip(played.bytes_at, played.between[1:], strict=True):
        points += (hill, level)
    return points


def random_chain(rng: random.Random, length: int, first: int = 0) -> list[Segment]:
    """Steps whose ops count up."""
    chain = []
    for index in range(length):
        delta = rng.randint(-9, 9)
        chain.append(Segment(max(0, delta) + rng.choice([0, rng.randint(0, 12)]), delta, first + index))
    return chain


def random_region(rng: random.Random, count: int) -> Steps:
    before = tuple(tuple(j for j in range(i) if rng.random() < 0.3) for i in range(count))
    couplings = tuple(
        Coupling(rng.randint(0, 9), tuple(sorted(rng.sample(range(count), rng.randint(2, count)))))
        for _ in range(rng.randint(0, 3) if count > 1 else 0)
    )
    delta = tuple(rng.randint(-9, 9) for _ in range(count))
    rise = tuple(max(0, change) + rng.choice([0, rng.randint(0, 12)]) for change in delta)
    return Steps(rise, delta, before, couplings)


def levels_of(region: Steps, order: Sequence[int]) -> list[int]:
    """Valleys and hills of an order of a region's items, from 0."""
    points = [0]
    for length, item in enumerate(order, start=1):
        points += (points[-1] + region.rise[item], region.bytes_after(set(order[:length])))
    return points


def profile(segments: Iterable[Segment], start: int = 0) -> list[int]:
    """Bytes as an alternating sequence valley, hill, valley, ..., valley.

    >>> profile([Segment(5, 2, 0), Segment(4, -1, 1)], start=10)
    [10, 15, 12, 16, 11]
    """
    points = [start]
    for segment in segments:
        points += (points[-1] + segment.rise, points[-1] + segment.delta)
    return points


def dominates(first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether the first profile may stand in for the second in every sum with other profiles.

    There must be a monotone pairing (start with start, end with end, every step moves on in one or both) in which
    the first is never above the second. O(len(first) x len(second)); Jin et al., appendix C.

    >>> dominates([0, 5, 1], [0, 6, 3, 4, 1]), dominates([0, 5, 1], [0, 4, 1])
    (True, False)
    """
    if not first or not second:
        return not first and not second
    reachable = [False] * len(second)
    for row, low in enumerate(first):
        diagonal = row == 0
        for column, high in enumerate(second):
            came = diagonal or reachable[column] or (column > 0 and reachable[column - 1])
            diagonal = reachable[column] if row else False
            reachable[column] = came and low <= high
    return reachable[-1]
