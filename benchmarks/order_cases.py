"""What `order_bars.py` measures, case by case: each function solves problems and returns one row of plain numbers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from neaptide.layout.from_order import order_buffers
from neaptide.layout.lower_arena import lower_arena
from neaptide.outcome import Limits, Outcome
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.neutral import from_json, from_mapping
from neaptide.schedule.order.portfolio import best_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.result import OrderResult
from neaptide_corpus.conv_backward import Update
from neaptide_corpus.order_forms import OrderForm
from neaptide_corpus.random_orders import repeated_blocks, wide
from neaptide_corpus.series_parallel import pumpkin, series_parallel
from neaptide_corpus.three_partition import hard_out_tree, hard_pumpkin, three_partition_numbers
from neaptide_corpus.training_networks import TRAINING_STEPS, training_step
from order_edits import measure

INSTANCES: Final = Path(__file__).resolve().parent / "instances" / "order"
LISTS: Final = ("program_order", "lpmf", "xla_list", "xla_dfs", "xla_post_order")
KIB: Final = 1024
ZOO_MODELS: Final = (
    "mlp",
    "resnet50",
    "densenet121",
    "unet",
    "unetpp",
    "vit",
    "bert",
    "gpt2",
    "llama",
    "lstm",
)
_EDITS_A_REPEAT: Final = 2  # of each kind
_FIRST_EDIT_SEED: Final = 2000

# Whole KB (networks) that an independent exact search has proved, and that HMCOS (DAC 2022) reaches where it ends.
EARLIER_OPTIMA: Final[Mapping[str, int]] = MappingProxyType(
    {
        "nasnet_cifar": 1984,
        "nasnet_imagenet": 4369,
        "amoebanet_cifar": 1440,
        "amoebanet_imagenet": 4361,
        "darts_cifar": 1584,
        "darts_imagenet": 4508,
        "pnas_cifar": 1664,
        "pnas_imagenet": 4511,
        "rand_wire_0": 4538,
        "rand_wire_1": 4538,
        "rand_wire_2": 4777,
        "nasnet_a_large": 33389,  # 32.61 MiB
        "pnasnet_5_large": 32330,  # 31.57 MiB
    }
)

Row = dict[str, Any]


def network(name: str, *, repeats: int, time_limit_s: float) -> Row:
    """One committed network: proved, how fast, and how large the arena of its order is."""
    problem = problem_of("network", name)
    row = _solved(problem, repeats, time_limit_s)
    order = row.pop("order")
    hierarchical = best_order(problem, Limits(time_s=time_limit_s), methods=["hierarchical"]).require()
    earlier = EARLIER_OPTIMA.get(name)
    placed = lower_arena(
        order, partial(order_buffers, problem), problem.is_order, Limits(time_s=time_limit_s)
    ).require()
    arena = placed.layout.arena_bytes or 0
    limit_s = 5.0 if name.partition("_fused")[0].endswith("_large") else 3.0
    return {
        "case": name,
        **row,
        "earlier_optimum_kib": earlier,
        "hierarchical_bytes": hierarchical.methods["hierarchical"].peak_bytes,
        "arena_bytes": arena,
        "met": {
            "proved in time": bool(row["proved"]) and row["cpu_seconds"] < limit_s,
            "equal to the earlier optimum": earlier is None or row["peak_bytes"] // KIB == earlier,
            "arena within 5 %": arena <= 1.05 * row["peak_bytes"],
            **_hierarchical_bars(
                hierarchical, row, earlier if name.endswith(("cifar", "imagenet")) else None
            ),
        },
    }


def training(name: str, update: Update, *, repeats: int, time_limit_s: float) -> Row:
    """One training step made by a generator."""
    problem = problem_of("training", name, update)
    row = _solved(problem, repeats, time_limit_s)
    row.pop("order")
    hierarchical = best_order(problem, Limits(time_s=time_limit_s), methods=["hierarchical"]).require()
    return {
        "case": f"{name} {update}",
        **row,
        "hierarchical_bytes": hierarchical.methods["hierarchical"].peak_bytes,
        "met": {
            "proved or gap under 1 %": bool(row["proved"]) or row["gap"] < 0.01,
            "no worse than the lists": row["peak_bytes"] <= row["best_list_bytes"],
            **_hierarchical_bars(hierarchical, row, None),
        },
    }


def captured(spec: str, *, repeats: int, time_limit_s: float) -> Row:
    """A step of the zoo, captured from PyTorch."""
    problem = captured_problem(spec)
    row = _solved(problem, repeats, time_limit_s)
    row.pop("order")
    already_best = row["program_order_bytes"] == row["order_lower_bound_bytes"]
    return {
        "case": spec,
        **row,
        "met": {
            "no worse than the lists": row["peak_bytes"] <= row["best_list_bytes"],
            "certificate of an optimal program order within 1 s per 1,000 ops": (
                not already_best or row["cpu_seconds"] <= row["ops"] / 1000
            ),
        },
    }


def edits(name: str, *, repeats: int, time_limit_s: float) -> Row:
    """Edits of all kinds in a committed network or a captured step, ordered again from the order before.

    Two of each kind a repeat. `order_edits.py` has the table by kind, on graphs and seeds of its own.
    """
    problem = problem_of("captured" if "@" in name else "network", name)
    rows = measure(
        name,
        problem,
        edits=_EDITS_A_REPEAT * repeats,
        first_seed=_FIRST_EDIT_SEED,
        time_limit_s=time_limit_s,
    )
    made, same_peak, same_bound = (
        sum(row[key] for row in rows) for key in ("edits", "same_peak", "same_bound")
    )
    shares = [share for row in rows for share in row["shares"]]
    share = statistics.median(shares) if shares else 0.0
    return {
        "case": name,
        "ops": problem.op_count,
        "edits": made,
        "same_peak": same_peak,
        "same_bound": same_bound,
        "cpu_seconds": statistics.median(row["cpu_seconds"] for row in rows) if rows else 0.0,
        "share": share,
        "met": {
            "peak of a full run in 95 % of edits": same_peak >= 0.95 * made,
            "bound of a full run in 95 % of edits": same_bound >= 0.95 * made,
            "a tenth of the cost of a full run": share <= 0.1,
        },
    }


def problem_of(kind: str, name: str, update: Update = Update.IN_PLACE) -> OrderProblem:
    """A committed `network`, a generated `training` step, or a model of the zoo as `captured`, by name."""
    if kind == "network":
        return from_json((INSTANCES / f"{name}.json").read_text(encoding="utf-8"))
    if kind == "training":
        net, batch = TRAINING_STEPS[name]
        return from_mapping(training_step(net, batch=batch, update=update))
    return captured_problem(name)


def captured_problem(spec: str) -> OrderProblem:
    from neaptide import zoo
    from neaptide.frontends.torch_step import capture_step
    from neaptide.schedule.order.from_graph import order_problem

    step, batch = zoo.factory(spec)()
    return order_problem(capture_step(step, (batch,)).steady.graph)


def reduced_family(family: str, degree: int, nodes: int, *, repeats: int, time_limit_s: float) -> Row:
    """Series-parallel graphs or pumpkins with shared tensors; medians over seeds."""
    make = _FAMILIES[family]
    rows = [_reduced(make(degree, nodes, seed), time_limit_s) for seed in range(repeats)]
    seconds = statistics.median(row["cpu_seconds"] for row in rows)
    proved = sum(row["proved"] for row in rows)
    limit_s, most = (5.0, 8) if family == "series-parallel" else (10.0, 12)
    met: dict[str, bool] = {}
    if degree <= most:
        met[f"proved in {limit_s:.0f} s"] = proved == repeats and seconds < limit_s
    if (family, nodes) == ("series-parallel", 1000):
        met = {"proved in 0.2 s": proved == repeats and seconds < 0.2}
    return {
        "case": f"{family} d={degree} n={nodes}",
        "ops": nodes,
        "degree": degree,
        "states": statistics.median(row["states"] for row in rows),
        "cpu_seconds": seconds,
        "proved": f"{proved}/{repeats}",
        "gap": max(row["gap"] for row in rows),
        "met": met,
    }


def hard(kind: str, triples: int, *, repeats: int, time_limit_s: float) -> Row:
    """Gadgets made from 3-PARTITION numbers that have a solution."""
    rows = []
    for seed in range(repeats):
        gadget = _GADGETS[kind](three_partition_numbers(triples, seed))
        rows.append(_reduced(gadget.form, time_limit_s) | {"threshold": gadget.threshold_bytes})
    return {
        "case": f"hard {kind} d={3 * triples}",
        "ops": len(gadget.form["ops"]),
        "degree": 3 * triples,
        "states": statistics.median(row["states"] for row in rows),
        "cpu_seconds": statistics.median(row["cpu_seconds"] for row in rows),
        "proved": f"{sum(row['proved'] for row in rows)}/{repeats}",
        "gap": max(row["gap"] for row in rows),
        "met": {
            "a proof agrees with the numbers": all(
                row["peak_bytes"] == row["threshold"] for row in rows if row["proved"]
            )
        },
    }


_WIDE_LIMIT_S = 25.0


def large(kind: str, *, time_limit_s: float) -> Row:
    """100,000 operations of repeated blocks, or 10,000 wide ones. Once: they take long."""
    form = repeated_blocks(100_000, 0) if kind == "blocks" else wide(10_000, 0)
    problem = from_mapping(form)
    if kind == "blocks":
        row = _reduced(form, time_limit_s)
        met = {"under 60 s": row["cpu_seconds"] < 60, "gap under 5 %": row["gap"] < 0.05}
    else:
        # The search goes on as long as it may; the bar is what it has by then.
        row = _solved(problem, 1, min(time_limit_s, _WIDE_LIMIT_S))
        row.pop("order")
        lpmf = row["methods"]["lpmf"]["peak_bytes"]
        met = {"under 30 s": row["cpu_seconds"] < 30, "no worse than LPMF": row["peak_bytes"] <= lpmf}
    return {"case": f"{kind} n={problem.op_count}", "ops": problem.op_count, **row, "met": met}


def _solved(problem: OrderProblem, repeats: int, time_limit_s: float) -> Row:
    """The portfolio's answer, with the median of the process time."""
    seconds: list[float] = []
    outcome: Outcome[OrderResult] | None = None
    for _ in range(repeats):
        began = time.process_time()
        outcome = best_order(problem, Limits(time_s=time_limit_s))
        seconds.append(time.process_time() - began)
    assert outcome is not None
    found = outcome.require()
    lists = best_order(problem, Limits(time_s=time_limit_s), methods=LISTS).require().methods
    return {
        "ops": problem.op_count,
        "storages": len(problem.storages),
        "program_order_bytes": evaluate_order(problem, range(problem.op_count)).peak_bytes,
        "best_list_bytes": min(m.peak_bytes for m in lists.values() if m.peak_bytes is not None),
        "peak_bytes": found.peak_bytes,
        "order_lower_bound_bytes": found.order_lower_bound_bytes,
        "gap": found.gap,
        "certificate": str(found.certificate),
        "proved": found.certificate.is_optimal,
        "states": found.states,
        "cpu_seconds": statistics.median(seconds),
        "methods": {
            name: {"peak_bytes": method.peak_bytes, "solve_seconds": method.seconds, "states": method.states}
            for name, method in {**lists, **found.methods}.items()
        },
        "order": found.order,
    }


def _reduced(form: OrderForm, time_limit_s: float) -> Row:
    """The portfolio's answer to a form, without a median."""
    problem = from_mapping(form)
    began = time.process_time()
    found = best_order(problem, Limits(time_s=time_limit_s)).require()
    seconds = time.process_time() - began
    return {
        "peak_bytes": evaluate_order(problem, found.order).peak_bytes,
        "order_lower_bound_bytes": found.order_lower_bound_bytes,
        "gap": found.gap,
        "proved": found.certificate.is_optimal,
        "states": found.states,
        "cpu_seconds": seconds,
    }


def _hierarchical_bars(alone: OrderResult, row: Row, hmcos_kib: int | None) -> dict[str, bool]:
    peak = alone.methods["hierarchical"].peak_bytes
    bars = {"hierarchical alone no worse than the lists": peak is not None and peak <= row["best_list_bytes"]}
    if hmcos_kib is not None:
        bars["hierarchical alone at HMCOS's value"] = peak is not None and peak // KIB <= hmcos_kib
    return bars


_FAMILIES: Final[Mapping[str, Callable[[int, int, int], OrderForm]]] = MappingProxyType(
    {
        "series-parallel": lambda degree, nodes, seed: series_parallel(nodes, degree, seed),
        "pumpkin": pumpkin,
    }
)
_GADGETS: Final = MappingProxyType({"out-tree": hard_out_tree, "pumpkin": hard_pumpkin})
