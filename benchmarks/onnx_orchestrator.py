"""How low passes bring the footprint of generated models with few measurements, beside exhaustive search and simple strategies.

    python benchmarks/onnx_orchestrator.py            # `results/onnx_orchestrator.json`

Every search runs over the records of `pass_records`: all states that at most three passes make. `ratio` is the footprint that a
strategy found over the lowest of the record, as a geometric mean. Two questions: graphs of known families that nothing was
learned from, and families of which nothing was learned. A third table counts what exhaustive search to depth 4 has to measure,
on held-out graphs of each family, up to ten times the measurements of the learned order.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import msgspec

import bench_record
from neaptide.named_peers import peer
from neaptide.outcome import Limits
from neaptide.planner.passes.learned import LearnedStrategy
from neaptide.planner.passes.named_order import NamedOrder
from neaptide.planner.passes.prior import Prior, PriorFile, built_in_prior
from neaptide.planner.passes.search import PassStrategy, search_passes
from neaptide_corpus.onnx_families import FAMILIES, SEEDS
from pass_records import FOLDER, HELD_OUT, Record, RecordedSpace, graph_space, records, split
from train_passes import fitted

MEASUREMENTS: Final = 20
ORDERS: Final = 300
DRAWS: Final = 5  # seeds of strategies that draw
DEEP: Final = 4
LEAST_TIMES: Final = 10  # as many measurements as the learned order that exhaustive search takes

Make = Callable[[], PassStrategy[Any]]


def found_bytes(record: Record, strategy: PassStrategy[Any], measurements: int | None) -> tuple[int, int]:
    """What a strategy finds, and the measurements after which it had it."""
    archive = search_passes(RecordedSpace(record), strategy, Limits(work=measurements)).require()
    return archive.best.nbytes, archive.best.number + 1


def ratio(record: Record, make: Make, measurements: int | None = MEASUREMENTS, draws: int = 1) -> float:
    """Geometric mean over draws of what is found over the lowest of the record."""
    return exp(
        fmean(log(found_bytes(record, make(), measurements)[0] / record.best_bytes) for _ in range(draws))
    )


def geometric(numbers: Sequence[float]) -> float:
    return exp(fmean(map(log, numbers)))


def table_alone(file: PriorFile) -> PriorFile:
    """A prior without its linear predictions."""
    rows = {}
    for name, row in file.rows.items():
        flat = [
            msgspec.structs.replace(linear, weights=(0.0,) * len(linear.weights))
            for linear in (row.direct, row.reach)
        ]
        rows[name] = msgspec.structs.replace(row, direct=flat[0], reach=flat[1])
    return msgspec.structs.replace(file, rows=rows)


def best_fixed_order(training: Sequence[Record], seed: int = 0) -> tuple[str, ...]:
    """Of some random orders of all passes, the one that brings the training set lowest."""
    draw = random.Random(seed)
    names = sorted({name for record in training for name in record.passes})
    orders = [tuple(draw.sample(names, len(names))) for _ in range(ORDERS)]

    def mean(order: tuple[str, ...]) -> float:
        return fmean(log(walked(record, order) / record.best_bytes) for record in training)

    return min(orders, key=mean)


def walked(record: Record, order: Sequence[str]) -> int:
    """The lowest footprint on the way of an order of passes, each applied where it finds a place; what `NamedOrder` finds."""
    at, lowest = 0, record.states[0].nbytes
    for name in order:
        after = record.states[at].tried.get(name, -1)
        at = at if after < 0 else after
        lowest = min(lowest, record.states[at].nbytes)
    return lowest


def strategies(training: Sequence[Record]) -> Iterator[tuple[str, Make, int | None, int]]:
    """Name, maker, measurements and draws of what is compared, after a training set."""
    file = fitted(training)
    order = best_fixed_order(training)
    seeds = random.Random(0)
    yield "no pass", lambda: NamedOrder(()), None, 1
    yield "learned", lambda: LearnedStrategy(Prior(file)), MEASUREMENTS, 1
    yield "table alone", lambda: LearnedStrategy(Prior(table_alone(file))), MEASUREMENTS, 1
    yield "best fixed order", lambda: NamedOrder(order), None, 1
    yield "greedy", lambda: peer("passes", "greedy").strategy(0), None, 1
    yield f"greedy of {MEASUREMENTS}", lambda: peer("passes", "greedy").strategy(0), MEASUREMENTS, 1
    yield "beam", lambda: peer("passes", "beam").strategy(0), MEASUREMENTS, 1
    for name in ("random_pick", "transfer_graph"):
        module = peer("passes", name)
        yield name, lambda module=module: module.strategy(seeds.randrange(2**32)), MEASUREMENTS, DRAWS


def judged(training: Sequence[Record], judged_on: Sequence[Record], question: str) -> list[dict[str, Any]]:
    """A row for each strategy."""
    rows = []
    greedy: list[float] = []
    for name, make, measurements, draws in strategies(training):
        ratios = [ratio(record, make, measurements, draws) for record in judged_on]
        complete = [one for one, record in zip(ratios, judged_on, strict=True) if record.complete]
        used = [found_bytes(record, make(), measurements)[1] for record in judged_on]
        if name == "greedy":
            greedy = ratios
        rows.append(
            {
                "question": question,
                "strategy": name,
                "measurements": measurements,
                "graphs": len(ratios),
                "ratio": round(geometric(ratios), 4),
                "ratio_of_complete": round(geometric(complete), 4) if complete else None,
                "worst": round(max(ratios), 4),
                "optimal": sum(one <= 1 + 1e-9 for one in ratios),
                "mean_measurements_to_best": round(fmean(used), 1),
                "_ratios": ratios,
            }
        )
    for row in rows:
        pairs = zip(row.pop("_ratios"), greedy, strict=True)
        row["above_greedy"] = sum(one > other * (1 + 1e-9) for one, other in pairs)
    return rows


def all_families(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each strategy, the geometric mean over held-out families."""
    of_families = [row for row in rows if row["question"].startswith("held-out family")]
    names = dict.fromkeys(row["strategy"] for row in of_families)
    found = []
    for name in names:
        own = [row for row in of_families if row["strategy"] == name]
        found.append(
            {
                "question": "held-out families",
                "strategy": name,
                "measurements": own[0]["measurements"],
                "graphs": sum(row["graphs"] for row in own),
                "ratio": round(geometric([row["ratio"] for row in own]), 4),
                "worst": max(row["worst"] for row in own),
                "optimal": sum(row["optimal"] for row in own),
                "above_greedy": sum(row["above_greedy"] for row in own),
            }
        )
    return found


def counted_to_depth(family: str, seed: int) -> dict[str, Any]:
    """How many states exhaustive search has to measure up to depth 4, and what the learned order does."""
    most = LEAST_TIMES * MEASUREMENTS
    strategy = peer("passes", "exhaustive").Exhaustive(DEEP)
    outcome = search_passes(graph_space(family, seed), strategy, Limits(work=most))
    learned = search_passes(
        graph_space(family, seed), LearnedStrategy(built_in_prior()), Limits(work=MEASUREMENTS)
    )
    best, found = outcome.require().best, learned.require().best
    return {
        "question": f"exhaustive to depth {DEEP}, {family} {seed}",
        "measurements_to_depth": outcome.work,
        "is_all": outcome.termination.limit is None,
        "measurements": learned.work,
        "measurements_to_best": found.number + 1,
        "ratio": round(found.nbytes / best.nbytes, 4),
    }


def shares_of_depth(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Measurements of the learned order over those of exhaustive search: all that it made, and those up to its best."""
    whole = sum(row["measurements_to_depth"] for row in rows)
    keys = {"share_of_depth_4": "measurements", "share_of_depth_4_to_best": "measurements_to_best"}
    return {name: round(sum(row[key] for row in rows) / whole, 4) for name, key in keys.items()}


def say_row(row: Mapping[str, Any]) -> None:
    bench_record.say(" ".join(f"{name}={value}" for name, value in row.items()))


def main() -> None:
    """Judge both questions and write the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=Path, default=FOLDER)
    parser.add_argument("--present", action="store_true", help="only records that are there")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="graphs of each family")
    parser.add_argument("--deep", type=int, default=1, help=f"graphs of each family to depth {DEEP}")
    asked = parser.parse_args()
    every = records(seeds=range(asked.seeds), folder=asked.records, is_present=asked.present)
    by_use = split(every)
    rows = judged(by_use["training"], by_use["held_out"], "held-out graphs")
    for family in FAMILIES:
        others = [record for record in every if record.family != family]
        own = [record for record in every if record.family == family and record.may_judge]
        rows += judged(others, own, f"held-out family {family}")
    rows += all_families(rows)
    for row in rows:
        say_row(row)
    deep = []
    for seed in HELD_OUT[: asked.deep]:
        for family in FAMILIES:
            deep.append(counted_to_depth(family, seed))
            say_row(deep[-1])
    rows += deep
    complete = sum(record.complete for record in every)
    states = fmean(len(record.states) for record in every)
    settings = {
        "graphs": len(every),
        "complete_to_depth_3": complete,
        "mean_states": round(states, 1),
        **shares_of_depth(deep),
    }
    bench_record.save("onnx_orchestrator", bench_record.recorded(rows, seed=0, repeats=1, **settings))


if __name__ == "__main__":
    main()
