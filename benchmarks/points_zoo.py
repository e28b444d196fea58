"""What is recomputed beside DTR on the whole zoo: `python benchmarks/points_zoo.py [--models mlp lstm]`.

Each model is captured once at size tiny (`mlp` with twelve layers: in three, nothing lies idle at the peak), with a batch that varies, and a length where there is one. At shapes that are drawn
from the ranges, and budgets between 95 % and 50 % of what a shape needs above its persistent storages, `least_cost_cover` decides in
the program with points, and DTR with its whole neighbourhoods evicts on the fly (Kirisame et al. 2021), on paper, in the same
order, with the same bytes. Both are told what an execution costs: in one comparison its floating-point operations, in the
other its estimated seconds, which are what programs with points count. Compared are cases in which both keep the budget.
The result is `results/points_zoo.json`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from bench_record import RESULTS, markdown, recorded, run_part, save, say

SEED: Final = 0
SHAPES: Final = 3
SHARES: Final = (95, 90, 80, 70, 60, 50)
DEVICE: Final = "rtx3090"
LENGTHS: Final = {"batch": {0: (1, 64), 1: (2, 64)}}
IMAGES: Final = {"batch": {0: (1, 64)}}
CASES: Final = {
    "mlp": IMAGES,
    "resnet50": IMAGES,
    "densenet121": IMAGES,
    "unet": IMAGES,
    "unetpp": IMAGES,
    "unet2d": IMAGES,
    "vit": IMAGES,
    "bert": LENGTHS,
    "gpt2": LENGTHS,
    "gptneo": LENGTHS,
    "btlm": LENGTHS,
    "llama": LENGTHS,
    "lstm": {"batch": {1: (1, 64)}},
}
COSTS: Final = ("flops", "seconds")
COLUMNS: Final = (
    "model",
    "budgets kept (by FLOPs / by seconds / DTR / of)",
    "FLOPs, both by FLOPs",
    "worst case",
    "FLOPs, both by seconds",
    "worst case",
    "seconds, both by seconds",
    "decision (ms)",
    "highest",
)

Row = dict[str, Any]


def measured(name: str) -> Row:
    """One model."""
    from neaptide import zoo
    from neaptide.cost.model import EstimatedCost
    from neaptide.cost.presets import get_device
    from neaptide.frontends.torch_step import capture_step
    from neaptide.ops import registry
    from neaptide.outcome import Limits
    from neaptide.planner.objective import PlanningProblem
    from neaptide.planner.points.plan import point_plan
    from neaptide.planner.points.shaped import ShapedProgram
    from neaptide.planner.strategies import early_updates
    from neaptide.runtime.comparing import contestants

    options = {"mlp": ",layers=12"} | dict.fromkeys((k for k, v in CASES.items() if v is LENGTHS), ",seq=64")
    spec = f"{name}@tiny{options.get(name, '')}"
    step, batch = contestants.build(zoo.factory(spec), SEED)
    graph = capture_step(step, (batch,), dynamic=CASES[name]).steady.graph
    cost = EstimatedCost(get_device(DEVICE), registry())
    sample = {dim.name: dim.low for dim in graph.dims}
    shaped = ShapedProgram(graph, cost, range(len(graph.nodes)), sample)
    order = early_updates.solve(PlanningProblem(shaped.problem, 0), Limits()).require().sequence
    plan = point_plan(graph, cost, order, sample, least_budget_bytes=0)
    draw = random.Random(SEED)
    shapes = [{dim.name: draw.randint(dim.low, dim.high) for dim in graph.dims} for _ in range(SHAPES)]
    return {
        "model": name,
        "nodes": len(graph.nodes),
        "candidates": plan.counts.kept,
        "cases": [case(plan, shape, share) for shape in shapes for share in SHARES],
    }


def case(plan: Any, shape: dict[str, int], share: int) -> Row:
    """One shape and one budget: what each recomputes, under each cost."""
    sizes = plan.shaped.at(shape)
    persistent = plan.shaped.persistent_size.evaluate(shape)
    budget = persistent + (sizes.peak_bytes - persistent) * share // 100
    work, seconds = plan.shaped.flops(shape).tolist(), sizes.repeat_seconds
    found: Row = {"shape": shape, "share": share, "budget_bytes": budget}
    for name, costs in zip(COSTS, (list(map(float, work)), seconds), strict=True):
        made = {"ours": ours(plan, sizes, costs, budget), "dtr": dtr(plan, shape, costs, budget)}
        for policy, (is_kept, repeated, spent) in made.items():
            found[f"{policy}_by_{name}"] = {
                "kept": is_kept,
                "flops": sum(work[node] for node in repeated),
                "seconds": sum(seconds[node] for node in repeated),
                "decision_seconds": spent,
            }
    return found


def ours(plan: Any, sizes: Any, costs: list[float], budget: int) -> tuple[bool, list[int], float]:
    """Whether the budget is kept, nodes that run again, and processor seconds of the decision."""
    from neaptide.planner.points.choices.decide import least_cost_cover
    from neaptide.planner.points.choices.situation import Situation

    priced = replace(sizes, repeat_seconds=costs)
    began = time.thread_time()
    script = least_cost_cover(Situation(plan.shaped, plan.candidates, priced, budget))
    return script.peak_bytes <= budget, list(script.repeated), time.thread_time() - began


def dtr(plan: Any, shape: dict[str, int], costs: list[float], budget: int) -> tuple[bool, list[int], float]:
    """The same of DTR."""
    from neaptide_peers.eviction.policy import heuristic
    from neaptide_peers.eviction.simulate import simulate

    problem = replace(plan.shaped.problem_at(shape), seconds=tuple(costs), repeat_seconds=tuple(costs))
    began = time.thread_time()
    run = simulate(problem, plan.shaped.units.order, heuristic("dtr"), budget)
    repeated = list((Counter(run.sequence) - Counter(set(run.sequence))).elements())
    return run.totals.peak_bytes <= budget, repeated, time.thread_time() - began


def over_dtr(row: Row, cost: str, what: str) -> tuple[float | None, float | None]:
    """Ours over DTR's: all cases of a model together, and the worst of them; None where both keep no budget."""
    pairs = [
        (one[f"ours_by_{cost}"][what], one[f"dtr_by_{cost}"][what])
        for one in row["cases"]
        if one[f"ours_by_{cost}"]["kept"] and one[f"dtr_by_{cost}"]["kept"]
    ]
    theirs = sum(pair[1] for pair in pairs)
    if not theirs:
        return None, None
    return sum(pair[0] for pair in pairs) / theirs, max(a / b if b else float(a > 0) for a, b in pairs)


def lines(result: Row) -> list[tuple[str, ...]]:
    """The cells of the table."""

    def told(number: float | None) -> str:
        return "-" if number is None else f"{number:.2f}"

    found = []
    for row in result["rows"]:
        kept = [sum(one[key]["kept"] for one in row["cases"]) for key in (*OURS, "dtr_by_seconds")]
        spent = [one["ours_by_seconds"]["decision_seconds"] * 1e3 for one in row["cases"]]
        found.append(
            (
                row["model"],
                " / ".join(map(str, (*kept, len(row["cases"])))),
                *map(told, over_dtr(row, "flops", "flops")),
                *map(told, over_dtr(row, "seconds", "flops")),
                told(over_dtr(row, "seconds", "seconds")[0]),
                f"{statistics.median(spent):.1f}",
                f"{max(spent):.1f}",
            )
        )
    return found


OURS: Final = tuple(f"ours_by_{cost}" for cost in COSTS)


def in_markdown(result: Row) -> str:
    """The table, and how often no more is recomputed."""
    text = markdown(COLUMNS, lines(result))
    told = []
    for cost in COSTS:
        cases = [
            one
            for row in result["rows"]
            for one in row["cases"]
            if one[f"ours_by_{cost}"]["kept"] and one[f"dtr_by_{cost}"]["kept"]
        ]
        not_more = sum(one[f"ours_by_{cost}"]["flops"] <= one[f"dtr_by_{cost}"]["flops"] for one in cases)
        told.append(f"by {cost} in {not_more} of {len(cases)}")
    text += ["", f"Not more FLOPs than DTR: {', '.join(told)} cases; made {result['made'][:10]}."]
    return "\n".join(text)


def main() -> None:
    """Measure, print a table and write the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measured(asked.one)))
        return
    rows = []
    for name in asked.models:
        say(name)
        row = run_part("points_zoo.py", "--one", name, timeout_s=1800)
        if failure := row.get("failure"):
            raise SystemExit(failure)
        rows.append(row)
    result = recorded(rows, seed=SEED, repeats=1, shares=SHARES, device=DEVICE)
    save("points_zoo", result, asked.output)
    print(in_markdown(result))


if __name__ == "__main__":
    main()
