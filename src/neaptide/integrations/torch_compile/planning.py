"""Plans a graph of FX: costs are measured, and a sequence is searched for.

AOTAutograd calls a partition function under its fake mode and its dispatcher. Both are left meanwhile: operations run on real
tensors.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.analysis.legality import check_schedule
from neaptide.analysis.profile_bytes import MemoryProfile, memory_profile
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.cost.measured import MeasuredCost
from neaptide.errors import InfeasibleBudget, VerifyError
from neaptide.integrations.torch_compile import _torch_private as private
from neaptide.integrations.torch_compile.joint_graph import JointGraph, line_of
from neaptide.integrations.torch_compile.options import BEST, Options
from neaptide.integrations.torch_compile.rows import rows
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.outcome import Limits
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.plan_graph import GraphAsk, GraphPlan, plan_graph
from neaptide.planner.pricing import Pricing
from neaptide.planner.unread_runs import without_unread_runs
from neaptide.plans import Predictions
from neaptide.units import format_bytes

_NAMED_LIVE: Final = 5
_GRAPHS_REMEMBERED: Final = 16
_plans: Final[OrderedDict[str, list[GraphPlan]]] = OrderedDict()


@dataclass(frozen=True)
class PlannedJoint:
    """A graph and the sequence in which its nodes run.

    Attributes:
        outside_bytes: what other graphs of the model hold meanwhile; no part of the predictions.
        saved_bytes: of storages that live across the border, but those of the caller and of the outputs.
        recomputed: how many operations run again.
    """

    joint: JointGraph
    sequence: tuple[int, ...]
    predictions: Predictions
    budget_bytes: int
    outside_bytes: int
    saved_bytes: int
    recomputed: int


def plan_joint(
    joint: JointGraph, options: Options, outside_bytes: int = 0, names: Sequence[str] = ()
) -> PlannedJoint:
    """The plan of a graph within the budget of the options.

    Args:
        outside_bytes: what other graphs of the model hold meanwhile; it counts into the budget.
        names: what the user calls the inputs, in order.

    Raises:
        InfeasibleBudget: no plan within the budget was found, and `on_infeasible` is `raise`.
    """
    with private.as_in_eager():
        return _planned(joint, options, outside_bytes, names)


def _planned(joint: JointGraph, options: Options, outside: int, names: Sequence[str]) -> PlannedJoint:
    graph, known = joint.graph, _plans_of(joint.graph)
    cost = MeasuredCost(rows())
    cost.prepare(graph)
    pricing = Pricing(cost, rows())

    def plan(peak: str | int | None) -> GraphPlan:
        budget = Budget(peak, outside_bytes=0 if peak in (None, "min") else outside)
        ask = Ask(budget, limits=Limits(options.seconds))
        asked = GraphAsk.of(ask, is_draft=True, known=tuple(known))
        known.append(_trimmed(graph, plan_graph(graph, pricing, asked), pricing))
        return known[-1]

    found = plan(options.peak)
    allowed = found.program.budget_bytes
    if found.program.predictions.peak_with_workspace_bytes > allowed:
        least = plan("min")
        if _peak(least) <= allowed or options.on_infeasible == BEST:
            found = min(least, found, key=lambda one: (_peak(one), one.program.predictions.seconds))
        else:
            raise _too_high(joint, min(least, found, key=_peak), pricing, allowed, outside, names)
    profile = _profile(joint, found, pricing)
    if profile.peak_with_workspace_bytes != _peak(found):
        raise VerifyError("both evaluators count other bytes for the plan of a joint graph")
    return PlannedJoint(
        joint,
        found.program.sequence,
        found.program.predictions,
        allowed,
        outside,
        _saved_bytes(joint, found, pricing),
        len(found.program.sequence) - len(graph.nodes),
    )


def _plans_of(graph: Graph) -> list[GraphPlan]:
    """Plans that were made of a graph for other budgets in this process: no later one is worse. O(size of the graph)."""
    key = fingerprint(graph)
    found = _plans.setdefault(key, [])
    _plans.move_to_end(key)
    if len(_plans) > _GRAPHS_REMEMBERED:
        _plans.popitem(last=False)
    return found


def _trimmed(graph: Graph, plan: GraphPlan, pricing: Pricing) -> GraphPlan:
    """A plan without executions that nobody reads."""
    sequence = without_unread_runs(graph, plan.program.sequence)
    if sequence == plan.program.sequence:
        return plan
    found = PlannedSequence.evaluate(pricing.problem(graph), sequence, plan.program.strategy)
    schedule = Schedule.from_nodes(graph, sequence)
    check_schedule(graph, schedule, pricing.registry)
    predictions = replace(
        plan.program.predictions,
        peak_bytes=found.peak_bytes,
        peak_with_workspace_bytes=found.peak_with_workspace_bytes,
        seconds=found.seconds,
    )
    program = replace(plan.program, sequence=sequence, predictions=predictions)
    return replace(plan, program=program, schedule=schedule)


def _peak(plan: GraphPlan) -> int:
    return plan.program.predictions.peak_with_workspace_bytes


def _profile(joint: JointGraph, plan: GraphPlan, pricing: Pricing) -> MemoryProfile:
    prices = pricing.prices(joint.graph)
    return memory_profile(
        joint.graph, plan.schedule, workspace=prices.workspace, storage_bytes=prices.storage_bytes
    )


def _saved_bytes(joint: JointGraph, plan: GraphPlan, pricing: Pricing) -> int:
    """Bytes that live across the border, but those of the caller and of the outputs, which the caller gets."""
    graph, border = joint.graph, joint.border
    if border is None:
        return 0
    profile = _profile(joint, plan, pricing)
    sizes = pricing.storage_bytes(graph)
    at_border = {graph.values[v].storage for v in (*graph.nodes[border].inputs, *graph.nodes[border].outputs)}
    others = sum(sizes[s] for s in at_border - set(graph.input_storages()) if s is not None)
    return profile.bytes_at[plan.program.sequence.index(border)] - profile.persistent_bytes - others


def _too_high(
    joint: JointGraph, plan: GraphPlan, pricing: Pricing, allowed: int, outside: int, names: Sequence[str]
) -> InfeasibleBudget:
    live = []
    told = dict(zip((node.name for node in joint.sides.primals), names, strict=False))
    for one in _profile(joint, plan, pricing).live_at_peak[:_NAMED_LIVE]:
        node = next((n for n in joint.module.graph.nodes if n.name == one.source.module), None)
        line = None if node is None else line_of(node)
        at = f" at {line.file}:{line.number}" if line is not None else ""
        live.append(f"{told.get(one.name, one.name)} ({one.kind}, {format_bytes(one.nbytes)}{at})")
    smallest, bound = _peak(plan) + outside, plan.program.predictions.lower_bound_bytes + outside
    return InfeasibleBudget(
        f"no plan within {format_bytes(allowed + outside)} was found; the lowest peak is {format_bytes(smallest)}",
        smallest_peak_bytes=smallest,
        lower_bound_bytes=bound,
        live=tuple(live),
        where="live at that peak: " + ", ".join(live),
        why=f"nothing is proved above {format_bytes(bound)}",
        next_step=f'allow that much ({smallest} bytes), take the best ("on_infeasible": "{BEST}"), '
        "or make the batch smaller",
    )
