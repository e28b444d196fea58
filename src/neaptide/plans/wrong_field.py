"""The refusal of a plan for one of its fields."""

from __future__ import annotations

from neaptide.errors import PlanError


def wrong_field(field: str, why: str) -> PlanError:
    """The refusal of a plan for one of its fields, such as `programs[0].saved`; `why` goes on the sentence."""
    return PlanError(
        f"the plan cannot be used: {field} {why}",
        next_step="make the plan again, or take an unchanged copy of its file",
    )
