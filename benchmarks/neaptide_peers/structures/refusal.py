"""What an algorithm for one structure raises where a problem does not have it."""

from __future__ import annotations

from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.steps import Steps


class Refusal(Exception):  # noqa: N818 - it is an answer, not a fault
    """The problem does not have the structure that an algorithm requires. The text names the op that breaks it."""


def refuse_pins(problem: OrderProblem, steps: Steps) -> None:
    """Refuse in-place ops that take over an operand with several last readers: no structure covers them.

    Raises:
        Refusal: names the first such op.
    """
    for op in steps.takeovers:
        raise Refusal(f"op {problem.ops[op].name} works in place on an operand with several last readers")


def refuse_couplings(problem: OrderProblem, steps: Steps) -> None:
    """Refuse storages that either of several ops may be the last to use, and pins.

    Raises:
        Refusal: names the first such storage and two of its readers.
    """
    refuse_pins(problem, steps)
    for coupling in steps.couplings:
        first, second = (problem.ops[op].name for op in coupling.ops[:2])
        raise Refusal(
            f"storage {problem.storages[coupling.storage].name} is shared: either {first} or {second} may use it last"
        )
