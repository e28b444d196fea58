"""Programs for all shapes under a budget: `python benchmarks/points_cost.py [--models gpt2@tiny,seq=64]`.

For each model one capture with dims for batch and length. Printed are the time of a decision for a shape that is new and
for one that was seen, the points that are left of all, what a run that fits pays beside the same program without points
(processor time, in turns), and what is recomputed at budgets between 90 % and 50 % of what a shape needs above its
persistent storages: by `least_cost_cover`, by the policies that decide on the fly, and by DTR with its whole neighbourhoods, run on
paper with the same sizes, seconds and order. Shapes are drawn evenly from the ranges. One thread.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_record import RESULTS, recorded, run_part, save, say, table

SEED = 0
SHAPES = 6
SHARES = (90, 80, 70, 60, 50)
REPEATS = 30
RANGE = {"batch": {0: (1, 64), 1: (2, 64)}}
DEVICE = "rtx3090"
MODELS = ("gpt2@tiny,seq=64", "llama@tiny,seq=64", "bert@tiny,seq=64", "gptneo@tiny,seq=64")
SIMULATED = "dtr on paper"
COLUMNS = (
    "model",
    "nodes",
    "new (ms)",
    "highest",
    "seen (us)",
    "fits",
    "kept",
    "delta",
    "dtr local",
    "dtr",
    SIMULATED,
)


def measure(spec: str, repeats: int) -> dict[str, Any]:
    """One model."""
    import torch

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

    torch.set_num_threads(1)
    step, batch = contestants.build(zoo.factory(spec), SEED)
    captured = capture_step(step, (batch,), dynamic=RANGE)
    graph = captured.steady.graph
    cost = EstimatedCost(get_device(DEVICE), registry())
    sample = {dim.name: dim.low for dim in graph.dims}
    shaped = ShapedProgram(graph, cost, range(len(graph.nodes)), sample)
    order = early_updates.solve(PlanningProblem(shaped.problem, 0), Limits()).require().sequence
    began = time.thread_time()
    plan = point_plan(graph, cost, order, sample, least_budget_bytes=0)
    planned = time.thread_time() - began
    draw = random.Random(SEED)
    shapes = [{dim.name: draw.randint(dim.low, dim.high) for dim in graph.dims} for _ in range(SHAPES)]
    return {
        "nodes": len(graph.nodes),
        "candidates": plan.counts.found,
        "candidates_left": plan.counts.kept,
        "points": plan.counts.points,
        "planning_seconds": planned,
        **decisions(plan, shapes, repeats),
        **peers(plan, shapes),
        "fitting_ratio": fitting(step, batch, captured.steady, plan, 4 * repeats),
    }


def budgets(plan: Any, shape: dict[str, int]) -> list[int]:
    """Persistent storages and a share of what a run needs beside them."""
    sizes = plan.shaped.at(shape)
    persistent = plan.shaped.persistent_size.evaluate(shape)
    return [persistent + (sizes.peak_bytes - persistent) * share // 100 for share in SHARES]


def decisions(plan: Any, shapes: list[dict[str, int]], repeats: int) -> dict[str, float]:
    """Seconds of decisions."""
    from neaptide.planner.points.plan import Decisions

    new, seen = [], []
    for shape in shapes:
        for budget in budgets(plan, shape):
            known = Decisions(plan)
            new.append(seconds(lambda: known.of(shape, budget)))  # noqa: B023 - called at once
            seen += [seconds(lambda: known.of(shape, budget)) for _ in range(repeats)]  # noqa: B023
    return {
        "new_shape_seconds": statistics.median(new),
        "new_shape_seconds_highest": max(new),
        "seen_shape_seconds": statistics.median(seen),
    }


def peers(plan: Any, shapes: list[dict[str, int]]) -> dict[str, Any]:
    """What is recomputed, as a geometric mean of ratios to ours where both keep the budget."""
    from neaptide.planner.points.choices.decide import POLICIES
    from neaptide.planner.points.plan import Decisions
    from neaptide_peers.eviction.policy import heuristic
    from neaptide_peers.eviction.simulate import simulate

    names = [*POLICIES, SIMULATED]
    kept: dict[str, int] = dict.fromkeys(names, 0)
    flops: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    fewer = cases = 0
    for shape in shapes:
        work = plan.shaped.flops(shape).tolist()
        time_of = plan.shaped.at(shape).repeat_seconds
        problem = plan.shaped.problem_at(shape)
        for budget in budgets(plan, shape):
            repeated = {}
            for name, policy in POLICIES.items():
                script = Decisions(plan, policy).of(shape, budget).script
                if script.peak_bytes <= budget:
                    repeated[name] = list(script.repeated)
            run = simulate(problem, plan.shaped.units.order, heuristic("dtr"), budget)
            if run.totals.peak_bytes <= budget:
                repeated[SIMULATED] = list((Counter(run.sequence) - Counter(set(run.sequence))).elements())
            cases += 1
            for name, nodes in repeated.items():
                kept[name] += 1
                if "least_cost_cover" in repeated:
                    ours = repeated["least_cost_cover"]
                    flops[name].append((sum(work[n] for n in nodes), sum(work[n] for n in ours)))
                    spent[name].append((sum(time_of[n] for n in nodes), sum(time_of[n] for n in ours)))
            both = SIMULATED in repeated and "least_cost_cover" in repeated
            fewer += both and flops[SIMULATED][-1][1] <= flops[SIMULATED][-1][0]
    return {
        "cases": cases,
        "kept": kept,
        "flops_of_ours_over": {name: ratio(pairs) for name, pairs in flops.items()},
        "seconds_of_ours_over": {name: ratio(pairs) for name, pairs in spent.items()},
        "cases_with_dtr": len(flops[SIMULATED]),
        "cases_not_above_dtr": fewer,
    }


def ratio(pairs: list[tuple[float, float]]) -> float | None:
    """Ours over theirs, all cases together."""
    theirs, ours = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    return ours / theirs if theirs else None


def fitting(step: Any, batch: Any, program: Any, plan: Any, repeats: int) -> float:
    """Processor time of a step that fits, with points over without: the median of pairs in turns."""
    import torch

    from neaptide.frontends.state.state_finder import find_state
    from neaptide.ir.schedule import Schedule
    from neaptide.lower.torch_code import lower
    from neaptide.ops import registry
    from neaptide.runtime.calls.binding import Binding
    from neaptide.runtime.calls.executor import Executable
    from neaptide.runtime.shapes.limit_by_shape import PointsWithin
    from neaptide.runtime.shapes.point_executable import PointExecutable, PointProgram

    step(batch)
    batch = {k: t.repeat(16, 1)[:16, :64].contiguous() for k, t in batch.items()}
    binding = Binding(program, program.graph, find_state(step))
    schedule = Schedule.from_nodes(program.graph, plan.shaped.units.order)
    plain = Executable(lower(program.graph, schedule, registry()), name="plain")
    points = PointExecutable(PointProgram(PointsWithin(plan, 1 << 50), "points"))

    def run(executable: Any) -> None:
        binding.write_back(executable.run(binding.read((batch,), {})))

    torch.manual_seed(SEED)
    ratios = []
    for number in range(repeats + 2):
        found = {}
        turns = (plain, points) if number % 2 else (points, plain)
        for executable in turns:
            found[executable.name] = seconds(lambda: run(executable))  # noqa: B023 - called at once
        if number >= 2:  # the first ones warm up
            ratios.append(found["points"] / found["plain"])
    return statistics.median(ratios)


def seconds(call: Callable[[], Any]) -> float:
    """Processor time of this thread."""
    began = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - began) / 1e9


def text(result: dict[str, Any]) -> str:
    """The table: `fits` is a step that fits over one without points, the last columns our flops over theirs."""
    lines = []
    for row in result["rows"]:
        if "failure" in row:
            lines.append([row["spec"], "failed", *["-"] * (len(COLUMNS) - 2)])
            continue
        over = row["flops_of_ours_over"]
        lines.append(
            [
                row["spec"],
                str(row["nodes"]),
                f"{row['new_shape_seconds'] * 1e3:.1f}",
                f"{row['new_shape_seconds_highest'] * 1e3:.1f}",
                f"{row['seen_shape_seconds'] * 1e6:.1f}",
                f"{row['fitting_ratio']:.3f}",
                f"{row['kept']['least_cost_cover']}/{row['kept'][SIMULATED]}/{row['cases']}",
                *(
                    "-" if over[name] is None else f"{over[name]:.2f}"
                    for name in ("delta", "dtr_local", "dtr", SIMULATED)
                ),
            ]
        )
    return table(COLUMNS, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one, asked.repeats)))
        return
    rows = []
    for spec in asked.models:
        say(spec)
        part = run_part("points_cost.py", "--one", spec, f"--repeats={asked.repeats}", timeout_s=900)
        rows.append({"spec": spec} | part)
    result = recorded(rows, seed=SEED, repeats=asked.repeats, shapes=SHAPES, shares=SHARES, device=DEVICE)
    print(text(result))
    save("points_cost", result, asked.output)


if __name__ == "__main__":
    main()
