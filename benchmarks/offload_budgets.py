"""Recomputation alone, offloads alone, and both: `python benchmarks/offload_budgets.py [--model llama@paper]`.

One model at its published size, on the meta device, planned for an A100 with three links. Budgets are shares of the way
from the peak of program order down to the least bytes that any schedule needs. Nothing is run: all figures are
predictions, and each plan is checked for legality and seconds by the checkers of schedules, which share no code with the
planner. Planning times are processor seconds; the search with offloads begins with the one without.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from bench_record import GIB, recorded, save, say, table
from neaptide import zoo

if TYPE_CHECKING:
    from neaptide.planner.offload.carried import OffloadPlan
    from neaptide.planner.offload.host import HostSpace

RESULT: Final = "offload_budgets"
SEED: Final = 0
MODEL: Final = "llama@paper"
DEVICE: Final = "a100-80g"
SHARES: Final = (0.2, 0.4, 0.6, 0.8, 1.0)
LINKS: Final = (("PCIe 4 x16", 1.0), ("PCIe 4 x4", 1 / 4), ("PCIe 4 x1", 1 / 16))
WORK: Final = 16_000
HOST_BYTES: Final = 1 << 40
WAYS: Final = ("recompute", "offload", "both")
COLUMNS: Final = (
    "link",
    "way to the floor",
    "budget (GiB)",
    "recompute alone",
    "offload alone",
    "both",
    "recomputed (both)",
    "stays (both)",
    "host (GiB)",
    "planning time",
)


def collect(model: str) -> dict[str, Any]:
    """All rows."""
    from neaptide.frontends.torch_step import capture_step
    from neaptide.outcome import LimitGuard, Limits
    from neaptide.planner.objective import PlannedSequence
    from neaptide.planner.offload.carried import Carried, OffloadPlan
    from neaptide.planner.offload.host import HostSpace
    from neaptide.planner.offload.problem import OffloadProblem
    from neaptide.planner.offload.search import choose_offload
    from neaptide.planner.portfolio import plan_sequence
    from neaptide.policy.prepared_step import PreparedStep
    from neaptide.schedule.evaluate import Evaluator

    step, batch = zoo.factory(model, device="meta")()
    prepared = PreparedStep(capture_step(step, (batch,), name=model), device=DEVICE)
    graph, problem = prepared.captured.steady.graph, prepared.problem()
    before = PlannedSequence.evaluate(problem, range(problem.node_count), "")
    whole = HostSpace.of(graph, prepared.device, HOST_BYTES)
    limits = Limits(work=WORK, seed=SEED)
    rows = []
    for share in SHARES:
        most, least = before.peak_with_workspace_bytes, problem.lower_bound_bytes
        budget = most - int(share * (most - least))
        began = time.process_time()
        alone = plan_sequence(problem, budget, limits).require()
        alone_s = time.process_time() - began
        order = PlannedSequence.evaluate(problem, tuple(dict.fromkeys(alone.sequence)), "")
        for link, rate in LINKS:
            say(f"{share:.0%} of the way to the floor, {link}")
            host = with_rate(whole, rate)
            began = time.process_time()
            both = choose_offload(OffloadProblem(problem, budget, host, [alone]), limits).require()
            both_s = alone_s + time.process_time() - began
            away = Carried(Evaluator(problem, order.sequence), host, budget)
            if away.fill_until_within(LimitGuard(limits)):
                away.drop_needless()
            stored = away.plan("offload")
            checked = _check(graph, problem, host)
            found = {"recompute": OffloadPlan(alone), "offload": stored, "both": both}
            rows.append(
                {
                    "link": link,
                    "bytes_per_s": host.out.bandwidth_bytes_per_s,
                    "share": share,
                    "budget_bytes": budget,
                    "baseline_seconds": before.seconds,
                    "recompute_planning_s": alone_s,
                    "both_planning_s": both_s,
                    **{way: checked(plan) for way, plan in found.items()},
                }
            )
    return recorded(rows, seed=SEED, repeats=1, model=model, device=DEVICE, work=WORK)


def with_rate(host: HostSpace, rate: float) -> HostSpace:
    """A host after links of so many times the rate."""
    out, back = (
        replace(one, bandwidth_bytes_per_s=rate * one.bandwidth_bytes_per_s) for one in (host.out, host.back)
    )
    return replace(host, out=out, back=back)


def _check(graph: Any, problem: Any, host: Any) -> Callable[[OffloadPlan], dict[str, Any]]:
    from neaptide.analysis.legality.schedule import check_schedule
    from neaptide.ir.schedule import Schedule
    from neaptide.ops import registry
    from neaptide.schedule.timeline import simulate_timeline

    def checked(plan: OffloadPlan) -> dict[str, Any]:
        """The figures of a plan, as the checkers of schedules find them."""
        schedule = Schedule.from_nodes(graph, plan.planned.sequence).with_offloads(plan.offloads)
        check_schedule(graph, schedule, registry())
        seconds = simulate_timeline(problem, schedule, host.out, host.back).seconds
        if abs(seconds - plan.planned.seconds) > 1e-9 * seconds:
            raise AssertionError(f"{plan.planned.seconds} seconds are planned, and {seconds} are played")
        return {
            "seconds": seconds,
            "exposed_s": plan.exposed_s,
            "peak_with_workspace_bytes": plan.planned.peak_with_workspace_bytes,
            "recomputed_nodes": len(plan.planned.sequence) - problem.node_count,
            "offloads": len(plan.offloads),
            "host_bytes": plan.host_bytes,
        }

    return checked


def added(row: Mapping[str, Any], way: str) -> str:
    """Seconds over program order, as a share; a dash where the budget is not met."""
    found = row[way]
    if found["peak_with_workspace_bytes"] > row["budget_bytes"]:
        return "-"
    return f"+{found['seconds'] / row['baseline_seconds'] - 1.0:.2%}"


def lines(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Cells of the table, links together."""
    order = [link for link, _ in LINKS]
    return [
        [
            row["link"],
            f"{row['share']:.0%}",
            f"{row['budget_bytes'] / GIB:.1f}",
            *(added(row, way) for way in WAYS),
            str(row["both"]["recomputed_nodes"]),
            str(row["both"]["offloads"]),
            f"{row['both']['host_bytes'] / GIB:.1f}",
            f"{row['both_planning_s'] / row['recompute_planning_s']:.1f}x",
        ]
        for row in sorted(rows, key=lambda row: (order.index(row["link"]), row["share"]))
    ]


def said(result: Mapping[str, Any]) -> str:
    """What stands below the table, beside the machine."""
    return f"Each search has {result['settings']['work']:,} units of work."


def main() -> int:
    """Make the table, write it and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=MODEL, help="of the zoo, with a size")
    asked = parser.parse_args()
    result = collect(asked.model)
    if asked.model == MODEL:
        save(RESULT, result)
    print(table(COLUMNS, lines(result["rows"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
