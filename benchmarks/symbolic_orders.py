"""One order for a range of shapes, beside the best order found for each shape: `python benchmarks/symbolic_orders.py`.

A training step of Llama is captured once, with a batch and a length that vary. One order is planned for the whole range
(`schedule.symbolic.orders`), with what is proved of it. At each shape of a grid, the orders of the shape alone are searched
as long as the order for the range was, and the peak of that one is divided by the lowest found. Beside it stand program
order and the two list schedules of BladeDISC++, which the paper describes as one forward (text) and one backward (Algorithm
1). Printed are shares above the best found for the exact shape. Seconds are processor time.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from fractions import Fraction
from typing import Any

from bench_record import recorded, save, say, table

SEED = 0
BATCHES = (2, 8, 64)
LENGTHS = (2, 32, 512, 4096)
RANGE = {"batch": {0: (1, 64), 1: (2, 4096)}}
ORIGINS = ("program order", "list, forward", "list, backward")
TOLERANCE = Fraction(1, 100)  # of the peak; the range is cut where no order is proved to be within it
MOST_PARTS = 16
COLUMNS = ("layers", "operations", "plan (s)", "proved within", "worst at a shape", *ORIGINS)


def measure(layers: int, time_s: float) -> dict[str, Any]:
    """One depth of the model."""
    from neaptide import zoo
    from neaptide.frontends.torch_step import capture_step
    from neaptide.outcome import Limits
    from neaptide.schedule.order.portfolio import best_order
    from neaptide.schedule.symbolic.orders import symbolic_orders
    from neaptide.schedule.symbolic.problem import symbolic_problem
    from neaptide_peers.orders.range_parts import best_parts

    step, batch = zoo.factory("llama@tiny", layers=layers)()
    graph = capture_step(step, (batch,), dynamic=RANGE).steady.graph
    problem = symbolic_problem(graph)
    start = time.process_time()
    candidates = symbolic_orders(problem, Limits(time_s=time_s))
    seconds = time.process_time() - start
    store, forms = problem.store, [candidate.peak.sizes for candidate in candidates]
    (whole,) = best_parts(store.dims, store.relations, forms, tolerance=TOLERANCE, most_parts=1)
    parts = best_parts(store.dims, store.relations, forms, tolerance=TOLERANCE, most_parts=MOST_PARTS)
    best = candidates[whole.order]
    kept = {candidate.origin: candidate for candidate in candidates}
    chosen = {"range": best, **{origin: kept[origin] for origin in ORIGINS if origin in kept}}
    shapes = []
    for sizes in itertools.product(BATCHES, LENGTHS):
        shape = {dim.name: size for dim, size in zip(graph.dims, sizes, strict=True)}
        static = problem.at(shape)
        own = best_order(static, Limits(time_s=time_s)).require()
        peaks = {name: candidate.peak.evaluate(shape) for name, candidate in chosen.items()}
        least = min(own.peak_bytes, *peaks.values())
        shapes.append(
            {
                **shape,
                "best_found_bytes": least,
                "lower_bound_bytes": own.order_lower_bound_bytes,
                "peak_bytes": peaks,
                "excess": {name: peak / least - 1 for name, peak in peaks.items()},
            }
        )
    return {
        "layers": layers,
        "operations": len(graph.nodes),
        "plan_s": seconds,
        "candidates": [candidate.origin for candidate in candidates],
        "chosen": best.origin,
        "expressions": len(best.peak.sizes),
        "parts": len(parts),
        "proved_excess": None if whole.excess is None else float(whole.excess),
        "worst_excess": {name: max(row["excess"][name] for row in shapes) for name in chosen},
        "shapes": shapes,
    }


def main() -> int:
    """Measure, print a table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 8, 32])
    parser.add_argument("--time", type=float, default=20.0, help="seconds of searches for one order")
    arguments = parser.parse_args()
    rows = []
    for layers in arguments.layers:
        rows.append(measure(layers, arguments.time))
        say(f"{layers} layers: {rows[-1]['chosen']}")
    say(table(COLUMNS, [_cells(row) for row in rows]))
    save("symbolic_orders", recorded(rows, seed=SEED, repeats=1, time_s=arguments.time))
    return 0


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    worst = row["worst_excess"]
    proved = "nothing" if row["proved_excess"] is None else f"{row['proved_excess']:.1%}"
    return (
        str(row["layers"]),
        str(row["operations"]),
        f"{row['plan_s']:.1f}",
        proved,
        f"{worst['range']:.2%}",
        *(f"{worst[origin]:.1%}" if origin in worst else "" for origin in ORIGINS),
    )


if __name__ == "__main__":
    sys.exit(main())
