"""Processor time of comparing two symbolic sizes of 50 terms: `python benchmarks/size_comparison.py`.

Sizes are polynomials over five dims. Before it is compared, a size is brought into the form of the store, once; the
column "to form" is for that. Every pair of a row is compared once in each repeat, and the store remembers nothing of pairs.
Printed are medians over the repeats of the mean over the pairs.

* `by coefficients`: one size is larger in every term;
* `depends on the shape`: independent coefficients; no single answer holds;
* `floor divisions`: ten of the terms are floor divisions;
* `related dims`: one dim follows from two others, and 4 divides one.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import Any

from bench_record import recorded, save, say, table
from neaptide.symbolic.dims import Dim, Relation
from neaptide.symbolic.relations import SizeRelations
from neaptide.symbolic.size_expr import SizeExpr

SEED = 0
PAIRS = 200
TERMS = 50
NAMES = ("B", "T", "S", "H", "V")
COLUMNS = ("case", "terms", "answers", "compare (us)", "to form (us)")

Pair = tuple[SizeExpr, SizeExpr]


def monomials() -> list[SizeExpr]:
    """All products of up to three of the dims."""
    found = []
    for degree in (1, 2, 3):
        for chosen in combinations_with_replacement(map(SizeExpr.dim, NAMES), degree):
            product = SizeExpr.const(1)
            for dim in chosen:
                product = product * dim
            found.append(product)
    return found


def _sum(parts: list[SizeExpr], rng: random.Random, most: int) -> SizeExpr:
    total = SizeExpr.const(0)
    for part in parts:
        total = total + part * rng.randint(1, most)
    return total


def by_coefficients(rng: random.Random) -> Pair:
    """The second is larger in every term."""
    parts = rng.sample(monomials(), TERMS)
    a = _sum(parts, rng, 4096)
    return a, a + _sum(parts, rng, 99)


def depends_on_the_shape(rng: random.Random) -> Pair:
    """Independent coefficients of the same dims."""
    everything = monomials()
    return _sum(rng.sample(everything, TERMS), rng, 4096), _sum(rng.sample(everything, TERMS), rng, 4096)


def floor_divisions(rng: random.Random) -> Pair:
    """A fifth of the terms are floor divisions, and the second is larger in every other term."""
    parts = rng.sample(monomials(), TERMS - 10)
    opaque = [(part + 3) // 5 for part in parts[:10]]
    a = _sum(parts, rng, 4096) + _sum(opaque, rng, 99)
    return a, a + _sum(parts, rng, 99)


CASES: dict[str, Callable[[random.Random], Pair]] = {
    "by coefficients": by_coefficients,
    "depends on the shape": depends_on_the_shape,
    "floor divisions": floor_divisions,
    "related dims": by_coefficients,
}


def store_of(case: str) -> SizeRelations:
    """A store with nothing in it yet."""
    b, t, s, h = map(SizeExpr.dim, NAMES[:4])
    relations = [Relation(h, b * t), Relation(s % 4, SizeExpr.const(0))] if case == "related dims" else []
    dims = [Dim(name, 1, None if name == "H" and relations else 4096) for name in NAMES]
    return SizeRelations(dims, relations)


def measure(case: str, repeats: int) -> dict[str, Any]:
    """Microseconds of a case."""
    rng = random.Random(SEED)
    pairs = [CASES[case](rng) for _ in range(PAIRS)]
    compared, formed = [], []
    answers: dict[str, int] = {}
    for repeat in range(repeats + 1):
        store = store_of(case)
        for pair in pairs[:2]:
            store.compare(*pair)  # most monomials have a number now
        start = time.process_time()
        known = [(store.known(a), store.known(b)) for a, b in pairs]
        middle = time.process_time()
        orders = [store.compare_known(a, b) for a, b in known]
        end = time.process_time()
        answers = {str(order): orders.count(order) for order in dict.fromkeys(orders)}
        if repeat:  # the first warms up
            formed.append((middle - start) / (2 * PAIRS))
            compared.append((end - middle) / PAIRS)
    return {
        "case": case,
        "terms": statistics.median(len(a.terms()) for a, _ in pairs),
        "answers": answers,
        "compare_us": statistics.median(compared) * 1e6,
        "to_form_us": statistics.median(formed) * 1e6,
    }


def main() -> int:
    """Measure all cases, print a table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    rows = [measure(case, repeats) for case in CASES]
    say(
        table(
            COLUMNS,
            [
                (
                    row["case"],
                    f"{row['terms']:g}",
                    ", ".join(f"{order} {count}" for order, count in row["answers"].items()),
                    f"{row['compare_us']:.1f}",
                    f"{row['to_form_us']:.1f}",
                )
                for row in rows
            ],
        )
    )
    save("size_comparison", recorded(rows, seed=SEED, repeats=repeats, pairs=PAIRS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
