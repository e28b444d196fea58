"""A plan in words."""

from __future__ import annotations

from pathlib import Path

from neaptide.plans import Plan
from neaptide.report.plan_text import plan_text
from neaptide.runtime.steps.arguments import check_plan


def explain(plan: Plan | str | Path) -> str:
    """What a plan does and why, as text; `plan.explain()` is the same.

    Args:
        plan: a plan, or the path of its file.

    Raises:
        PlanError: there is no such file, or it is no plan.
        UsageError: neither a plan nor a path was given.
    """
    return plan_text(check_plan(plan), path=None if isinstance(plan, Plan) else str(plan))
