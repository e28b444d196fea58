"""What structure is worth in orders: `python benchmarks/order_structures.py [SECTION ...] [--repeats N] [--time-limit S]`.

Sections: `networks`, `training`, `zoo`, `corpus`; all of them if none is named. For each graph: the parts that the default
finds and solves on their own; the default without them (runs of ops are joined all the same), in turn with it, in states and
process time; and the most that other algorithms for those parts could save: the time spent in pumpkins, in which phase
split runs too, and the ops in trees, which Liu's rule orders too. With all sections the numbers go to
`benchmarks/results/order_structures.json`. Each graph runs in a process of its own.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import Any, Final
from unittest.mock import patch

import bench_sections
import order_cases
from bench_record import table
from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.neutral import from_mapping
from neaptide.schedule.order.portfolio import best_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.regions import contraction
from neaptide.schedule.order.regions.dominant import LatticeResult, dominant_segments
from neaptide.schedule.order.regions.parts import PartKind, kind_of, summarise_parts
from neaptide.schedule.order.regions.reduce import reduce
from neaptide.schedule.order.regions.segments import Segment
from neaptide.schedule.order.steps import Steps, to_steps
from neaptide_corpus.conv_backward import Update
from neaptide_corpus.series_parallel import Buffers, in_tree, out_tree, pumpkin, series_parallel
from neaptide_corpus.three_partition import hard_pumpkin, three_partition_numbers
from neaptide_corpus.training_networks import TRAINING_STEPS
from neaptide_peers.orders.structures import STRUCTURES
from neaptide_peers.structures.pumpkins import Pumpkin, count_splits, order_by_phase_split

Row = dict[str, Any]

_MOST_SPLITS: Final = 20_000
_MOST_STATES: Final = 200_000
_NETWORKS: Final = tuple(order_cases.EARLIER_OPTIMA)
_CORPUS: Final[Mapping[str, Callable[[], Any]]] = MappingProxyType(
    {
        "in-tree n=3000": partial(in_tree, 3000, 0),
        "out-tree, buffer per edge n=3000": partial(out_tree, 3000, 0, buffers=Buffers.PER_EDGE),
        "out-tree, shared n=3000": partial(out_tree, 3000, 0),
        "series-parallel, buffer per edge n=1000": partial(
            series_parallel, 1000, 4, 0, buffers=Buffers.PER_EDGE
        ),
        "series-parallel, shared d=4 n=1000": partial(series_parallel, 1000, 4, 0),
        **{f"pumpkin d={d} n={n}": partial(pumpkin, d, n, 0) for d in (2, 4, 6, 8) for n in (60, 200)},
        **{
            f"hard pumpkin d={3 * m}": lambda m=m: hard_pumpkin(three_partition_numbers(m, 0)).form
            for m in (1, 2, 3)
        },
    }
)
CASES: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = MappingProxyType(
    {
        "networks": tuple(("network", name) for name in _NETWORKS),
        "training": tuple(("training", name, Update.IN_PLACE) for name in TRAINING_STEPS),
        "zoo": tuple(("captured", f"{model}@tiny") for model in order_cases.ZOO_MODELS),
        "corpus": tuple(("corpus", name) for name in _CORPUS),
    }
)


def measure(case: Sequence[str], repeats: int, time_limit_s: float) -> Row:
    """One graph, here and now."""
    problem = _problem(case)
    limits = Limits(time_s=time_limit_s)
    best_order(problem, Limits(work=10))  # what is imported at first use
    rows: dict[str, list[Row]] = {"with": [], "without": []}
    for repeat in range(repeats):
        # In turn, the first one too: what comes second finds warm caches.
        for name in sorted(rows, reverse=bool(repeat % 2)):
            with _without_parts() if name == "without" else nullcontext():
                rows[name].append(_timed(problem, limits))
    found = rows["with"][0]
    return {
        "case": case[1],
        "ops": problem.op_count,
        "parts": found["parts"],
        **{f"{key}_{name}": value for name, some in rows.items() for key, value in _median(some).items()},
        **_reduction(problem),
        **_trees(problem),
        "methods": {name: _alone(name, problem, time_limit_s) for name in STRUCTURES if name != "dominant"},
    }


def _timed(problem: OrderProblem, limits: Limits) -> Row:
    began = time.process_time()
    found = best_order(problem, limits).require()
    seconds = time.process_time() - began
    return {
        "peak_bytes": found.peak_bytes,
        "proved": found.certificate.is_optimal,
        "states": found.states,
        "cpu_seconds": seconds,
        "parts": [
            f"{p.count} {p.kind} (to {p.largest_ops} ops, degree {p.degree}, {p.states} states)"
            for p in summarise_parts(found.parts)
        ],
    }


def _median(rows: Sequence[Row]) -> Row:
    first = rows[0]
    return {
        "peak_bytes": first["peak_bytes"],
        "proved": first["proved"],
        "states": statistics.median(row["states"] for row in rows),
        "cpu_seconds": statistics.median(row["cpu_seconds"] for row in rows),
    }


@contextmanager
def _without_parts() -> Iterator[None]:
    """Only runs of ops are joined: nothing is merged, nothing is solved."""
    with (
        patch.object(contraction.ChainGraph, "_join_parallel", lambda *_: None),
        patch.object(contraction.ChainGraph, "_contract_regions", lambda *_: False),
    ):
        yield


def _reduction(problem: OrderProblem) -> Row:
    """One reduction of its own: its time, that within pumpkins, and that of phase split for the same pumpkins."""
    pumpkins: list[Steps] = []
    inside_s = split_s = 0.0

    def watched(region: Steps, limit: int, guard: LimitGuard | None = None) -> LatticeResult:
        nonlocal inside_s
        began = time.process_time()
        result = dominant_segments(region, limit, guard)
        if kind_of(region) is PartKind.PUMPKIN:
            inside_s += time.process_time() - began
            pumpkins.append(region)
        return result

    began = time.process_time()
    with patch.object(contraction, "dominant_segments", watched):
        reduce(
            to_steps(problem),
            Limits(time_s=30.0),
            region_states=_MOST_STATES if problem.op_count < 500 else 5000,
        )
    reduce_s = time.process_time() - began
    too_many = 0
    for region in pumpkins:
        again = _as_pumpkin(region)
        if count_splits(again) > _MOST_SPLITS:
            too_many += 1
            continue
        began = time.process_time()
        order_by_phase_split(again)
        split_s += time.process_time() - began
    return {
        "reduce_s": reduce_s,
        "pumpkins": len(pumpkins),
        "pumpkin_s": inside_s,
        "phase_split_s": None if too_many else split_s,
    }


def _as_pumpkin(region: Steps) -> Pumpkin:
    follower = {before[0]: item for item, before in enumerate(region.predecessors) if before}
    ((nbytes, heads, _),) = region.couplings
    chains = []
    for head in heads:
        chain = [head]
        while chain[-1] in follower:
            chain.append(follower[chain[-1]])
        chains.append(tuple(Segment(region.rise[item], region.delta[item], item) for item in chain))
    return Pumpkin(nbytes, tuple(chains))


def _trees(problem: OrderProblem) -> Row:
    """Ops in the in-trees and out-trees that share nothing with the rest, and that have a join or a fork in them."""
    steps = to_steps(problem)
    tied = {op for coupling in steps.couplings for op in coupling.ops}
    inward = _tree_ops(range(problem.op_count), steps.predecessors, steps.successors, tied)
    outward = _tree_ops(range(problem.op_count - 1, -1, -1), steps.successors, steps.predecessors, tied)
    return {"tree_ops": len(inward | outward), "largest_tree_ops": max(_largest(inward, steps), 0)}


def _tree_ops(
    order: Sequence[int], below: Sequence[Sequence[int]], above: Sequence[Sequence[int]], tied: set[int]
) -> set[int]:
    """Ops all of whose descendants on one side form a tree with a fork in it."""
    size, joins = {}, {}
    for op in order:
        if op not in tied and all(other in size and len(above[other]) == 1 for other in below[op]):
            size[op] = 1 + sum(size[other] for other in below[op])
            joins[op] = len(below[op]) > 1 or any(joins[other] for other in below[op])
    roots = [op for op in size if joins[op] and not any(other in size for other in above[op])]
    found: set[int] = set()
    while roots:
        op = roots.pop()
        found.add(op)
        roots += below[op]
    return found


def _largest(ops: set[int], steps: Steps) -> int:
    size: dict[int, int] = {}
    for op in sorted(ops):
        size[op] = 1 + sum(size[other] for other in steps.predecessors[op] if other in size)
    return max(size.values(), default=0)


def _alone(name: str, problem: OrderProblem, time_limit_s: float) -> Row:
    began = time.process_time()
    outcome = STRUCTURES[name](problem, Limits(time_s=time_limit_s), None)
    return {
        "cpu_seconds": time.process_time() - began,
        "best": outcome.termination.best,
        "reason": str(outcome.termination.reason),
        "detail": outcome.termination.detail,
    }


def _problem(case: Sequence[str]) -> OrderProblem:
    kind, name, *rest = case
    if kind == "corpus":
        return from_mapping(_CORPUS[name]())
    return order_cases.problem_of(kind, name, *map(Update, rest))


def show(section: str, rows: Sequence[Row]) -> str:
    """One section as a table, the parts of each graph below it, then what failed."""
    del section
    good = [row for row in rows if "failure" not in row]
    failed = [f"{row['case']} failed: {row['failure']}" for row in rows if "failure" in row]
    columns = (
        "case",
        "ops",
        "peak",
        "states",
        "without",
        "CPU s",
        "without",
        "reduce s",
        "pumpkins s",
        "split s",
        "tree ops",
    )
    cells = [
        [
            row["case"],
            str(row["ops"]),
            "same" if row["peak_bytes_with"] == row["peak_bytes_without"] else "differs",
            f"{row['states_with']:.0f}",
            f"{row['states_without']:.0f}",
            f"{row['cpu_seconds_with']:.3f}",
            f"{row['cpu_seconds_without']:.3f}",
            f"{row['reduce_s']:.3f}",
            f"{row['pumpkin_s']:.4f}",
            "-" if row["phase_split_s"] is None else f"{row['phase_split_s']:.4f}",
            str(row["tree_ops"]),
        ]
        for row in good
    ]
    parts = [f"{row['case']}: {'; '.join(row['parts']) or 'no parts'}" for row in good]
    return "\n".join([table(columns, cells), *parts, *failed])


if __name__ == "__main__":
    bench_sections.main(__file__, __doc__, CASES, measure, show, time_limit_s=20.0, searches=4)
