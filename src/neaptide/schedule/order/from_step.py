"""The ordering problem of a step's integer problem, for planners that work on that."""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage, inverse
from neaptide.schedule.problem import StepProblem


def step_order_problem(step: StepProblem, order: Sequence[int] | None = None) -> OrderProblem:
    """What there is to order in a step, each node once. O(size of the step).

    Op k is the k-th node of `order`, which is the list order, so the baseline of what is found. What the caller owns
    is one more storage, persistent, of `persistent_bytes`. Peaks equal those of `schedule.evaluate.Evaluator`.
    """
    nodes = tuple(range(step.node_count)) if order is None else tuple(order)
    position_of = {node: position for position, node in enumerate(nodes)}
    handed_back = {step.value_storage[value] for value in step.outputs}
    storages = [
        OrderStorage(
            f"{step.storage_names[s]}#{s}",
            step.storage_bytes[s],
            resident=step.is_persistent[s],
            output=s in handed_back,
        )
        for s in range(len(step.storage_bytes))
    ]
    storages.append(OrderStorage("what the caller owns", step.persistent_bytes, resident=True))
    touched = inverse(step.roles, len(nodes))
    ops = []
    for node in nodes:
        made = set(step.created[node])
        written = {s for s in touched[node] if node in step.writers[s]}
        ops.append(
            OrderOp(
                f"node {node}",
                tuple(s for s in touched[node] if s not in made),
                tuple(sorted(made | written)),
                step.own_workspace[node],
                tuple((s, step.overwrites[node].storage) for s in made) if node in step.overwrites else (),
                tuple(sorted(position_of[before] for before in step.predecessors[node])),
            )
        )
    return OrderProblem(tuple(storages), tuple(ops))
