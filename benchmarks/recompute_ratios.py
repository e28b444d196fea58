"""`activation_memory_budget` beside ours: at each peak that one of its ratios reaches, both overheads.

Its plans come from PyTorch's own partitioner where the models after an instance can be traced (`torch_partitioner`),
and from the simulation in `min_cut_ratios`. Ours is the default planner's answer for each of those peaks, or the one for
a lower peak where that is faster; its bounds say how small the quotient of both could be at best.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.portfolio import plan_sequence
from neaptide.planner.recompute.chain.plans import carry_out
from neaptide.planner.recompute.units import forward_units
from neaptide.planner.strategies.program_order import baseline
from neaptide.schedule.problem import StepProblem
from neaptide_peers.strategies.min_cut_ratios import ratio_tables

Row = dict[str, Any]
PYTORCH: Final = "PyTorch"
SIMULATED: Final = "simulated"
PUBLISHED: Final = "published"
_RATIOS: Final = (*(k / 20 for k in range(20, -1, -1)), 0.12, 0.08, 0.07, 0.02)
# Ours over its overhead, at most: at its mildest ratio and at all others.
_BARS: Final[dict[str, tuple[float, float]]] = {"gpt12": (0.92, 0.75), "resnet16": (0.35, 0.35)}


def against_ratios(
    name: str, step: StepProblem, published: Mapping[str, float | None], time_limit_s: float
) -> Row:
    """All ratios of one instance.

    Args:
        name: of the instance.
        step: its problem.
        published: by share of the peak, the best overhead known of a ratio within it; None: no ratio is.
        time_limit_s: of each of our searches.
    """
    before = baseline(step)
    theirs = [*_by_pytorch(name, step), *_simulated(step), *_published(published, before)]
    ours = _front(step, sorted({peak for _, _, peak, _ in theirs}), Limits(time_s=time_limit_s))
    rows: list[Row] = []
    for source, ratio, peak_bytes, overhead in theirs:
        own, least = ours.get(peak_bytes, (None, None))
        rows.append(
            {
                "source": source,
                "ratio": ratio,
                "peak_share": peak_bytes / before.peak_with_workspace_bytes,
                "overhead": overhead,
                "ours": own,
                "quotient": own / overhead if overhead and own is not None else None,
                "least_quotient": least / overhead if overhead and least is not None else None,
            }
        )
    return {"ratios": rows, "nodes": step.node_count, "met": _met(name, rows)}


def _front(
    step: StepProblem, budgets: Sequence[int], limits: Limits
) -> dict[int, tuple[float, float | None]]:
    """By budget, from the lowest on, overhead of the fastest plan so far and its bound; none where none fits."""
    found: dict[int, tuple[float, float | None]] = {}
    fastest = float("inf")
    for budget in budgets:
        outcome = plan_sequence(step, budget, limits)
        plan, bound = outcome.require(), outcome.termination.bound
        if plan.peak_with_workspace_bytes > budget:
            continue
        fastest = min(fastest, plan.seconds)
        least = None if bound is None else max(bound / step.baseline_seconds - 1.0, 0.0)
        found[budget] = fastest / step.baseline_seconds - 1.0, least
    return found


def _by_pytorch(name: str, step: StepProblem) -> Iterator[tuple[str, float | None, int, float]]:
    before = baseline(step)
    for ratio, sequence in _sequences(name, step).items():
        found = PlannedSequence.evaluate(step, sequence, PYTORCH)
        yield PYTORCH, ratio, found.peak_with_workspace_bytes, found.seconds / before.seconds - 1.0


def _sequences(name: str, step: StepProblem) -> dict[float, tuple[int, ...]]:
    from torch_partitioner import sequences

    return sequences(name, step.storage_names, _RATIOS)


def _simulated(step: StepProblem) -> Iterator[tuple[str, float | None, int, float]]:
    before = baseline(step)
    forward = forward_units(step, before.sequence)
    problem = PlanningProblem(step, before.peak_with_workspace_bytes)
    for ratio, table in ratio_tables(step, forward):
        found = carry_out(problem, forward, table, LimitGuard(Limits()), SIMULATED)
        yield SIMULATED, ratio, found.peak_with_workspace_bytes, found.seconds / before.seconds - 1.0


def _published(
    published: Mapping[str, float | None], before: PlannedSequence
) -> Iterator[tuple[str, float | None, int, float]]:
    for share, overhead in published.items():
        if overhead is not None:
            yield PUBLISHED, None, int(float(share) * before.peak_with_workspace_bytes), overhead


def _met(name: str, rows: Sequence[Row]) -> dict[str, bool]:
    """The bars; those on PyTorch's own plans and on published ones, for the simulated partitioner is a better one."""
    mildest, others = _BARS[name]
    met = {}
    for source in (PYTORCH, PUBLISHED):
        costly = [row for row in rows if row["source"] == source and row["overhead"]]
        least = min((row["overhead"] for row in costly), default=0.0)
        for row in costly:
            bar = mildest if row["overhead"] == least else others
            where = f"{source} at {row['peak_share']:.1%}"
            met[f"at most {bar} of {where}"] = row["ours"] is not None and row["quotient"] <= bar
    by_peak = sorted(rows, key=lambda row: row["peak_share"])
    reached = [row["ours"] for row in by_peak if row["ours"] is not None]
    met["monotone"] = all(a >= b for a, b in pairwise(reached))
    return met
