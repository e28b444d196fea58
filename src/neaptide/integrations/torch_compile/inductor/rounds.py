"""Plans for Inductor: what it would make of a plan is read before it is compiled, and the next plan aims accordingly.

Inductor's own partition is the first candidate. It is taken where it fits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from torch import fx

from neaptide.budget import Budget
from neaptide.errors import InfeasibleBudget
from neaptide.integrations.torch_compile.elsewhere import NOTHING
from neaptide.integrations.torch_compile.inductor import prediction
from neaptide.integrations.torch_compile.inductor.prediction import Compiled
from neaptide.integrations.torch_compile.joint_graph import JointGraph
from neaptide.integrations.torch_compile.options import BEST, Options
from neaptide.integrations.torch_compile.partition import cut
from neaptide.integrations.torch_compile.planning import PlannedJoint, plan_joint
from neaptide.units import format_bytes

_MOST_ROUNDS: Final = 4
Modules = tuple[fx.GraphModule, fx.GraphModule]


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
    def extra_s(self) -> float:
        """Predicted seconds of what is recomputed, in kernels of ATen."""
        return 0.0 if self.plan is None else self.plan.predictions.seconds


def best_within(
    own: Candidate,
    read: Callable[[], JointGraph],
    options: Options,
    *,
    outside_bytes: int = 0,
    names: tuple[str, ...] = (),
) -> Candidate:
    """The candidate that fits and recomputes least; Inductor's own where no peak is asked for.

    Args:
        own: Inductor's own partition; a share is of its peak.
        read: gives the joint graph.

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
    tried = [own, *_tried(read(), options, allowed, names, own.compiled)]
    fitting = [one for one in tried if one.compiled.peak_bytes <= allowed]
    if fitting:
        found = min(fitting, key=lambda one: one.extra_s)
    else:
        found = min(tried, key=lambda one: (one.compiled.peak_bytes, one.extra_s))
        if not is_min and options.on_infeasible != BEST:
            raise _too_high(found, allowed, outside_bytes)
    return replace(found, rounds=len(tried) - 1)


def _tried(
    joint: JointGraph, options: Options, allowed: int, names: tuple[str, ...], own: Compiled
) -> list[Candidate]:
    """Plans with lower and lower aims until one fits, then higher ones as long as they fit and recompute less."""
    tried: list[Candidate] = []
    asked = replace(options, on_infeasible=BEST, time_limit=options.seconds / _MOST_ROUNDS)
    too_high, low = None, 0
    aim: int | None = None
    for _ in range(_MOST_ROUNDS):
        peak = "min" if not allowed else f"{aim}B" if aim is not None else _share(allowed, own)
        plan = plan_joint(joint, replace(asked, peak=peak), NOTHING, names)
        modules = cut(joint, plan.sequence)
        compiled = prediction.of_training(*modules, len(joint.sides.outputs))
        tried.append(Candidate(modules, compiled, plan))
        if not allowed:
            break
        planned = plan.predictions.peak_with_workspace_bytes
        if compiled.peak_bytes > allowed:
            too_high = planned if too_high is None else min(too_high, planned)
            aim = planned - (compiled.peak_bytes - allowed)
        else:
            low = max(low, planned)
            slack = allowed - compiled.peak_bytes
            if slack * 20 < allowed or too_high is None:
                break
            aim = (low + too_high) // 2
        if aim <= plan.predictions.lower_bound_bytes or (too_high is not None and aim >= too_high):
            break
    return tried


def _share(allowed: int, own: Compiled) -> str:
    return f"{100 * allowed / own.peak_bytes:.2f}%"


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
