"""Random ordering problems, and brute force over all their orders."""

import random
from functools import cache

from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from schedule.order.small_orders import all_orders


def random_problem(
    seed: int,
    n: int,
    *,
    in_place: bool = False,
    mutation: bool = False,
    control: bool = True,
    reach: int = 4,
    largest: int = 20,
) -> OrderProblem:
    rng = random.Random(seed)
    storages = [
        OrderStorage(f"i{k}", rng.randint(1, largest), resident=rng.random() < 0.3)
        for k in range(rng.randint(0, 2))
    ]
    ops: list[OrderOp] = []
    for index in range(n):
        recent = list(range(max(0, len(storages) - reach), len(storages)))
        reads = tuple(sorted(rng.sample(recent, min(len(recent), rng.choice((0, 1, 1, 2, 2, 3))))))
        writes = []
        for k in range(rng.choice((0, 1, 1, 1, 1, 2))):
            writes.append(len(storages))
            storages.append(OrderStorage(f"t{index}_{k}", rng.randint(1, largest), output=rng.random() < 0.1))
        if mutation and reads and rng.random() < 0.3:
            writes.append(rng.choice(reads if rng.random() < 0.7 else recent))
        pairs = ()
        if in_place and reads and writes:
            pairs = tuple((rng.choice(writes), rng.choice(reads)) for _ in range(rng.choice((0, 1, 1, 2, 3))))
            pairs = tuple((w, r) for w, r in pairs if w != r)
        after = (rng.randrange(index),) if control and index and rng.random() < 0.15 else ()
        workspace = rng.choice((0, 0, 0, rng.randint(1, largest)))
        ops.append(OrderOp(f"op{index}", reads, tuple(dict.fromkeys(writes)), workspace, pairs, after))
    return OrderProblem(tuple(storages), tuple(ops), name=f"random_{seed}")


def literal_bytes(problem: OrderProblem, order: tuple[int, ...]) -> list[int]:
    """Bytes at each op, straight from the words of the neutral form; shares no code with what is tested."""
    place = {op: p for p, op in enumerate(order)}
    uses: dict[int, list[int]] = {}
    writers: dict[int, list[int]] = {}
    for index, op in enumerate(problem.ops):
        for s in {*op.reads, *op.writes}:
            uses.setdefault(s, []).append(index)
        for s in op.writes:
            writers.setdefault(s, []).append(index)
    spans = {}
    for s, storage in enumerate(problem.storages):
        if s in writers and not storage.resident:
            first_writer = writers[s][0]
            read_before = any(s in op.reads for op in problem.ops[: first_writer + 1])
            start = 0 if read_before else place[first_writer]
        else:
            start = 0
        if storage.resident or storage.output:
            end = len(order)
        else:
            end = max((place[u] for u in uses.get(s, ())), default=-1) + 1
        spans[s] = (start, end)
    result = []
    for position, index in enumerate(order):
        op = problem.ops[index]
        total = sum(problem.storages[s].nbytes for s, (a, b) in spans.items() if a <= position < b)
        usable = [
            (w, r)
            for w, r in set(op.in_place)
            if spans[w][0] == position
            and writers[w][0] == index
            and not any(w in o.reads for o in problem.ops[: index + 1])
            and not problem.storages[w].resident
            and spans[r][1] == position + 1
            and not (problem.storages[r].resident or problem.storages[r].output)
            and r not in op.writes
        ]
        result.append(total + op.workspace - _most(problem, usable))
    return result


def _most(problem: OrderProblem, pairs: list[tuple[int, int]]) -> int:
    if not pairs:
        return 0
    (w, r), rest = pairs[0], pairs[1:]
    free = [(a, b) for a, b in rest if a != w and b != r]
    return max(
        _most(problem, rest),
        min(problem.storages[w].nbytes, problem.storages[r].nbytes) + _most(problem, free),
    )


@cache
def brute_force(problem: OrderProblem) -> int:
    return min(max(literal_bytes(problem, order), default=0) for order in all_orders(problem))
