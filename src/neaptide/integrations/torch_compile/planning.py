"""Plans a graph of FX: costs are measured, and a sequence is searched for.

AOTAutograd calls a partition function under its fake mode and its dispatcher. Both are left meanwhile: operations run on real
tensors.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import MemoryProfile, memory_profile
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.errors import InfeasibleBudget, VerifyError
from neaptide.integrations.torch_compile import _torch_private as private
from neaptide.integrations.torch_compile.card import Card
from neaptide.integrations.torch_compile.elsewhere import NOTHING, CostWithBorder, Elsewhere
from neaptide.integrations.torch_compile.joint.joint_graph import JointGraph, has_symbols, line_of
from neaptide.integrations.torch_compile.joint.rows import rows
from neaptide.integrations.torch_compile.options import BEST, Options
from neaptide.integrations.torch_compile.regions.search import Wanted, plans_in_parts
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.outcome import Limits
from neaptide.planner.graphs.plan_graph import GraphAsk, GraphPlan, plan_graph
from neaptide.planner.objective import PlannedSequence
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
        elsewhere: what is there beside the graph; of the predictions what is there between the passes is a part.
        card_bytes: of a card beside what the graph asks for.
        border_bytes: that are live between the passes, without what is there from elsewhere; its gradients that come back are
            among them.
        tangent_bytes: of these gradients.
        saved_bytes: of storages that live across the border, but those of the caller and of the outputs.
        recomputed: how many operations run again.
        parts: what runs in parts, in words; empty where nothing does.
    """

    joint: JointGraph
    sequence: tuple[int, ...]
    predictions: Predictions
    budget_bytes: int
    elsewhere: Elsewhere
    card_bytes: int
    border_bytes: int
    tangent_bytes: int
    saved_bytes: int
    recomputed: int
    parts: str = ""

    def peak_beside(self, elsewhere: Elsewhere) -> int:
        """Highest bytes, with what is there from elsewhere."""
        own = self.predictions.peak_with_workspace_bytes
        return max(own, self.border_bytes + elsewhere.between) + elsewhere.held + self.card_bytes

    @property
    def allowed_bytes(self) -> int:
        """What the budget allows the graph, with what was there from elsewhere when it was planned."""
        return self.budget_bytes + self.elsewhere.held + self.card_bytes

    @property
    def is_within(self) -> bool:
        """Whether it is within its budget."""
        return self.predictions.peak_with_workspace_bytes <= self.budget_bytes


@dataclass(frozen=True)
class _Found:
    """A graph, and a plan that was found for it; `parts` is what runs in parts, in words."""

    joint: JointGraph
    plan: GraphPlan
    pricing: Pricing
    parts: str = ""

    @property
    def peak_bytes(self) -> int:
        return self.plan.program.predictions.peak_with_workspace_bytes

    @property
    def rank(self) -> tuple[int, float]:
        return self.peak_bytes, self.plan.program.predictions.seconds

    def within(self, allowed: int) -> tuple[int, float, int]:
        """Lower is better, where so many bytes are allowed."""
        peak, seconds = self.rank
        return max(peak - allowed, 0), seconds, peak

    def profile(self) -> MemoryProfile:
        """What is live when."""
        graph, schedule = self.joint.graph, self.plan.schedule
        prices = self.pricing.prices(graph, schedule.bodies)
        return memory_profile(graph, schedule, workspace=prices.workspace, storage_bytes=prices.storage_bytes)


def plan_joint(
    joint: JointGraph, options: Options, elsewhere: Elsewhere = NOTHING, names: Sequence[str] = ()
) -> PlannedJoint:
    """The plan of a graph within the budget of the options.

    Args:
        elsewhere: what is there beside the graph; it counts into the budget.
        names: what the user calls the inputs, in order.

    Raises:
        InfeasibleBudget: no plan within the budget was found, and `on_infeasible` is `raise`.
    """
    with private.as_in_eager():
        return _Planning(joint, options, elsewhere, names).run()


class _Planning:
    """Searches for one graph; arguments as of `plan_joint`."""

    def __init__(
        self, joint: JointGraph, options: Options, elsewhere: Elsewhere, names: Sequence[str]
    ) -> None:
        self.joint, self.options, self.elsewhere, self.names = joint, options, elsewhere, names
        self.cost = CostWithBorder(rows())
        self.cost.between = elsewhere.between
        self.cost.prepare(joint.graph)
        self.pricing = Pricing(self.cost, rows())
        self.known = _plans_of(joint.graph)
        self.card = Card.of(joint.graph, self.pricing)
        self.outside = elsewhere.held + self.card.bytes_beside

    def run(self) -> PlannedJoint:
        """The best plan; on a card the blocks of its allocator are to stay within the budget too."""
        found, allowed = self._best()
        over = self.card.blocks_over(found.plan.schedule, allowed) if found.joint is self.joint else 0
        if over and self.options.peak not in (None, "min") and found.peak_bytes <= allowed:
            outside = self._budget(self.options.peak).tighter(over).outside_bytes
            if outside > self.outside:
                self.outside = outside
                found, allowed = self._best()
        if found.peak_bytes > allowed and self.options.on_infeasible != BEST:
            raise _too_high(found, allowed, self.outside, self.names)
        profile = found.profile()
        if profile.peak_with_workspace_bytes != found.peak_bytes:
            raise VerifyError("both evaluators count other bytes for the plan of a joint graph")
        sequence, border = found.plan.program.sequence, found.joint.border
        return PlannedJoint(
            found.joint,
            sequence,
            found.plan.program.predictions,
            allowed,
            self.elsewhere,
            self.outside - self.elsewhere.held,
            0 if border is None else profile.bytes_at[sequence.index(border)],
            _tangent_bytes(found),
            _saved_bytes(found, profile),
            len(sequence) - len(found.joint.graph.nodes),
            found.parts,
        )

    def _best(self) -> tuple[_Found, int]:
        """The best plan that was found, and the bytes that the budget allows it."""
        found = self._with_same_bits(self.options.peak)
        allowed = found.plan.program.budget_bytes
        if found.peak_bytes > allowed:
            found = min(found, self._with_same_bits("min"), key=lambda one: one.rank)
        if self.options.may_run_in_parts and not has_symbols(self.joint):
            found = self._in_parts(found, allowed)
        return found, found.peak_bytes if self.options.peak == "min" else allowed

    def _budget(self, peak: str | int | None) -> Budget:
        return Budget(peak, outside_bytes=0 if peak in (None, "min") else self.outside)

    def _with_same_bits(self, peak: str | int | None) -> _Found:
        graph = self.joint.graph
        ask = Ask(self._budget(peak), limits=Limits(self.options.seconds))
        asked = GraphAsk.of(ask, is_draft=True, known=tuple(self.known))
        plan = _trimmed(graph, plan_graph(graph, self.pricing, asked), self.pricing)
        self.known.append(plan)
        return _Found(self.joint, plan, self.pricing)

    def _in_parts(self, found: _Found, allowed: int) -> _Found:
        """The best plan with regions in parts, or the one that there is."""
        made = found.plan.program.predictions
        peak = self.options.peak
        aim = 0 if peak == "min" else allowed
        baseline = made.baseline_peak_with_workspace_bytes
        budget = self._budget(peak)
        wanted = Wanted(budget, budget.resolve(baseline), self.options.seconds)
        for joint, plan, label in plans_in_parts(self.joint, self.cost, self.pricing, wanted):
            predictions = replace(
                plan.program.predictions,
                baseline_peak_with_workspace_bytes=baseline,
                baseline_seconds=made.baseline_seconds,
            )
            other = replace(plan, program=replace(plan.program, predictions=predictions))
            found = min(found, _Found(joint, other, self.pricing, label), key=lambda one: one.within(aim))
            if found.within(aim)[:2] <= (0, made.baseline_seconds):
                break
        return found


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


def _tangent_bytes(found: _Found) -> int:
    graph, border = found.joint.graph, found.joint.border
    sizes = found.pricing.storage_bytes(graph)
    return 0 if border is None else sum(sizes[s] for s in graph.created_storages(graph.nodes[border]))


def _saved_bytes(found: _Found, profile: MemoryProfile) -> int:
    """Bytes that live across the border, but those of the caller and of the outputs, which the caller gets."""
    graph, border = found.joint.graph, found.joint.border
    if border is None:
        return 0
    sizes = found.pricing.storage_bytes(graph)
    at_border = {graph.values[v].storage for v in (*graph.nodes[border].inputs, *graph.nodes[border].outputs)}
    others = sum(sizes[s] for s in at_border - set(graph.input_storages()) if s is not None)
    return profile.bytes_at[found.plan.program.sequence.index(border)] - profile.persistent_bytes - others


def _too_high(found: _Found, allowed: int, outside: int, names: Sequence[str]) -> InfeasibleBudget:
    live, joint = [], found.joint
    told = dict(zip((node.name for node in joint.sides.primals), names, strict=False))
    for one in found.profile().live_at_peak[:_NAMED_LIVE]:
        node = next((n for n in joint.module.graph.nodes if n.name == one.source.module), None)
        line = None if node is None else line_of(node)
        at = f" at {line.file}:{line.number}" if line is not None else ""
        live.append(f"{told.get(one.name, one.name)} ({one.kind}, {format_bytes(one.nbytes)}{at})")
    smallest = found.peak_bytes + outside
    bound = found.plan.program.predictions.lower_bound_bytes + outside
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
