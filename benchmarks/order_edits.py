"""Ordering again after an edit, beside a full run: results, bounds and process time, edit by edit."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import replace
from typing import Any, NamedTuple

from neaptide.outcome import Limits
from neaptide.schedule.order.carried import carried_bound
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.incremental import reschedule
from neaptide.schedule.order.portfolio import best_order
from neaptide.schedule.order.problem import OrderOp, OrderProblem

Row = dict[str, Any]


class Edit(NamedTuple):
    """An edited problem, the index in it of each op that was there before, and the ops that changed."""

    problem: OrderProblem
    now_at: tuple[int, ...]
    changed: tuple[int, ...]


def recompute(problem: OrderProblem, rng: random.Random) -> Edit | None:
    """A storage is made a second time for its last reader. None where no storage has two readers."""
    choices = [
        storage
        for storage, accessors in enumerate(problem.accessors)
        if len(accessors) >= 3
        and not problem.storages[storage].output
        and not problem.from_start[storage]
        and sum(storage in problem.ops[op].writes for op in accessors) == 1
        and problem.ops[accessors[0]].writes == (storage,)
    ]
    if not choices:
        return None
    storage = rng.choice(choices)
    creator, user = problem.accessors[storage][0], problem.accessors[storage][-1]
    twin = len(problem.storages)
    storages = (*problem.storages, replace(problem.storages[storage], name="twin"))

    def moved(op: OrderOp) -> OrderOp:
        return replace(op, after=tuple(other + (other >= user) for other in op.after))

    ops = [moved(op) for op in problem.ops]
    ops[user] = replace(
        ops[user],
        reads=tuple(twin if read == storage else read for read in ops[user].reads),
        in_place=tuple((made, twin if read == storage else read) for made, read in ops[user].in_place),
    )
    ops.insert(user, replace(problem.ops[creator], name="again", writes=(twin,), in_place=(), after=()))
    now_at = tuple(op + (op >= user) for op in range(problem.op_count))
    return Edit(OrderProblem(storages, tuple(ops), problem.name), now_at, (user, user + 1))


def measure(name: str, problem: OrderProblem, *, edits: int, time_limit_s: float) -> Row:
    """A few recomputations of one problem, each ordered again from the best order before it and in full."""
    limits = Limits(time_s=time_limit_s)
    before = best_order(problem, limits).require()
    same_peak = same_bound = made = 0
    shares, seconds = [], []
    for seed in range(edits):
        edit = recompute(problem, random.Random(seed))
        if edit is None:
            continue
        began = time.process_time()
        old_order = [edit.now_at[op] for op in before.order]
        floor = carried_bound(problem, before.order_lower_bound_bytes, edit.problem, edit.now_at)
        found = reschedule(edit.problem, old_order, edit.changed, limits=limits, floor_bytes=floor).require()
        middle = time.process_time()
        full = best_order(edit.problem, limits).require()
        ended = time.process_time()
        made += 1
        assert evaluate_order(edit.problem, found.order).peak_bytes == found.peak_bytes
        same_peak += found.peak_bytes <= full.peak_bytes
        same_bound += found.order_lower_bound_bytes >= full.order_lower_bound_bytes
        seconds.append(middle - began)
        shares.append((middle - began) / (ended - middle))
    share = statistics.median(shares) if shares else 0.0
    return {
        "case": name,
        "ops": problem.op_count,
        "edits": made,
        "same_peak": same_peak,
        "same_bound": same_bound,
        "cpu_seconds": statistics.median(seconds) if seconds else 0.0,
        "share": share,
        "met": {
            "peak of a full run in 95 % of edits": same_peak >= 0.95 * made,
            "bound of a full run in 95 % of edits": same_bound >= 0.95 * made,
            "a tenth of the cost of a full run": share <= 0.1,
        },
    }
