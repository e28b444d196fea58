"""Plans for Inductor: what it would make of a plan is read before it is compiled, and the next plan aims accordingly.

Inductor's own partition is the first candidate. It is taken where it fits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from torch import fx

from neaptide.ask import BITWISE
from neaptide.budget import Budget
from neaptide.errors import InfeasibleBudget
from neaptide.integrations.torch_compile.elsewhere import NOTHING
from neaptide.integrations.torch_compile.inductor import prediction
from neaptide.integrations.torch_compile.inductor._torch_private import Generated
from neaptide.integrations.torch_compile.inductor.contract import contracted
from neaptide.integrations.torch_compile.inductor.joined import joined
from neaptide.integrations.torch_compile.inductor.kernel_op import Body, expanded, running
from neaptide.integrations.torch_compile.inductor.prediction import Compiled
from neaptide.integrations.torch_compile.joint.joint_graph import JointGraph, read_joint
from neaptide.integrations.torch_compile.options import BEST, Options
from neaptide.integrations.torch_compile.planning import PlannedJoint, plan_joint
from neaptide.integrations.torch_compile.programs.partition import cut
from neaptide.ir.nodes import Node
from neaptide.units import format_bytes

_MOST_ROUNDS: Final = 4
Modules = tuple[fx.GraphModule, fx.GraphModule]


@dataclass(frozen=True)
class Problem:
    """A joint graph, and what its kernels compute, by number."""

    joint: JointGraph
    bodies: tuple[Body, ...] = ()

    @staticmethod
    def of(
        joint: fx.GraphModule, own: Modules, programs: tuple[Generated, ...], num_fwd_outputs: int
    ) -> Problem:
        """What is left to plan after Inductor has fused: its partition, with a node for each of its kernels."""
        made = contracted(joined(joint, own, num_fwd_outputs), programs)
        with running(made.bodies):
            return Problem(drawn_once(read_joint(made.module, made.sides)), made.bodies)

    def planned(self, options: Options, names: tuple[str, ...]) -> tuple[PlannedJoint, Modules]:
        """A plan, and its graphs without kernels."""
        plan = plan_joint(self.joint, options, NOTHING, names)
        forward, backward = cut(self.joint, plan.sequence)
        return plan, (expanded(forward, self.bodies), expanded(backward, self.bodies))


def drawn_once(joint: JointGraph) -> JointGraph:
    """The same with streams of random numbers whose state nobody keeps. What follows from a seed may be recomputed."""

    def drawing(node: Node) -> Node:
        stream = node.effects.rng
        return node if stream is None else replace(node, effects=replace(node.effects, rng=f"fx:{stream}"))

    return replace(joint, graph=replace(joint.graph, nodes=tuple(map(drawing, joint.graph.nodes))))


@dataclass(frozen=True)
class Candidate:
    """Two graphs of FX, and what Inductor makes of them.

    Attributes:
        plan: what they were made of; None for Inductor's own partition.
        rounds: how many plans were tried.
    """

    modules: Modules
    compiled: Compiled
    plan: PlannedJoint | None = None
    rounds: int = 0

    @property
    def planned_s(self) -> float:
        """Predicted seconds of a plan; plans of one graph are compared by them."""
        return 0.0 if self.plan is None else self.plan.predictions.seconds


def best_within(
    own: Candidate,
    others: Callable[[int], list[Candidate]],
    options: Options,
    outside_bytes: int = 0,
) -> Candidate:
    """The candidate that fits and recomputes least; Inductor's own where it fits, or no peak is asked for.

    Args:
        own: what Inductor does by itself; a share is of its peak.
        others: plans for so many bytes, or as few as possible for zero.

    Raises:
        InfeasibleBudget: none fits, and `on_infeasible` is `raise`.
    """
    if options.peak is None:
        return own
    is_min = options.peak == "min"
    budget = Budget(options.peak, outside_bytes=0 if is_min else outside_bytes)
    allowed = 0 if is_min else budget.resolve(own.compiled.peak_bytes)
    if own.compiled.peak_bytes <= allowed:
        return own
    tried = [own, *others(allowed)]
    fitting = [one for one in tried if one.compiled.peak_bytes <= allowed]
    if fitting:
        found = min(fitting, key=lambda one: one.planned_s)
    else:
        found = min(tried, key=lambda one: (one.compiled.peak_bytes, one.planned_s))
        if not is_min and options.on_infeasible != BEST:
            raise _too_high(found, allowed, outside_bytes)
    return replace(found, rounds=len(tried) - 1)


def rounds_for(
    problem: Problem, options: Options, allowed: int, names: tuple[str, ...] = ()
) -> list[Candidate]:
    """Plans with lower and lower aims until one fits, then higher ones as long as they fit and recompute less."""
    tried: list[Candidate] = []
    asked = replace(options, on_infeasible=BEST, numerics=BITWISE, time_limit=options.seconds / _MOST_ROUNDS)
    too_high, low = None, 0
    aim = allowed
    for _ in range(_MOST_ROUNDS):
        peak = "min" if not allowed else f"{aim}B"
        plan, modules = problem.planned(replace(asked, peak=peak), names)
        compiled = prediction.of_training(*modules, len(problem.joint.sides.outputs))
        tried.append(Candidate(modules, compiled, plan))
        planned = plan.predictions.peak_with_workspace_bytes
        if planned > aim:  # no plan is known that goes lower
            break
        if compiled.peak_bytes > allowed:
            too_high = planned if too_high is None else min(too_high, planned)
            aim = planned - (compiled.peak_bytes - allowed)
        else:
            low = max(low, planned)
            slack = allowed - compiled.peak_bytes
            if slack * 20 < allowed:
                break
            aim = planned + slack if too_high is None else (low + too_high) // 2
        if too_high is not None and aim >= too_high:
            break
    return tried


def _too_high(found: Candidate, allowed: int, outside: int) -> InfeasibleBudget:
    smallest = found.compiled.peak_bytes + outside
    return InfeasibleBudget(
        f"no plan within {format_bytes(allowed + outside)} was found; the lowest peak is {format_bytes(smallest)}",
        smallest_peak_bytes=smallest,
        lower_bound_bytes=outside,
        where="in the programs that Inductor makes",
        next_step=f'allow that much ({smallest} bytes), take the best ("on_infeasible": "{BEST}"), '
        "or make the batch smaller",
    )
