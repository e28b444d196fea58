"""Orders that compilers make today, without search and without proof: for comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from neaptide.schedule.order.heuristics import DownsetState, Order, backward_list, lpmf, order_by_priority
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.sharing import created_bytes
from neaptide.schedule.order.steps import to_steps

_OfProblem: TypeAlias = Callable[[OrderProblem], Order]


def reverse_post_order(problem: OrderProblem) -> Order:
    """Depth-first from the first ops along their consumers, finished ops reversed: the textbook's reverse post-order.

    Not what HMCOS calls so: its baseline walks from the outputs along operands, see `depth_first`.
    """
    roots = [op for op in range(problem.op_count) if not problem.predecessors[op]]
    finished = _post_order(roots, lambda op: problem.successors[op])
    return tuple(reversed(finished))


def depth_first(problem: OrderProblem) -> Order:
    """XLA's post-order: from the last ops back along their operands, an op once its operands are out.

    HMCOS (DAC 2022) calls this the reverse post-order and starts from it: its graph is walked from the outputs, so it
    is the reverse post-order of the graph with arcs turned round.
    """
    roots = [op for op in range(problem.op_count) if not problem.successors[op]]
    return tuple(_post_order(roots, lambda op: problem.predecessors[op]))


def xla_dfs(problem: OrderProblem) -> Order:
    """XLA's DFS scheduler: post-order that visits operands of many extra users, then of large totals, first.

    Both figures are sums over all that leads to an op, with double counting that XLA caps at the number of ops and
    at the bytes met so far (`hlo_memory_scheduler.cc`).
    """
    extra_users = [0] * problem.op_count
    totals = [0] * problem.op_count
    met = 0
    for op in range(problem.op_count):
        own = created_bytes(problem, op)
        met += own
        before = problem.predecessors[op]
        extra = max(0, len(problem.successors[op]) - 1)
        extra_users[op] = min(problem.op_count, extra + sum(extra_users[b] for b in before))
        totals[op] = min(met, own + sum(totals[b] for b in before))

    def operands(op: int) -> Sequence[int]:
        return sorted(problem.predecessors[op], key=lambda b: (-extra_users[b], -totals[b], b))

    roots = [op for op in range(problem.op_count) if not problem.successors[op]]
    return tuple(_post_order(roots, operands))


def xla_list(problem: OrderProblem) -> Order:
    """XLA's list scheduler: always the ready op that frees most and makes least, then the one with most users.

    It ignores what an op needs while it runs.
    """
    state = DownsetState(to_steps(problem))

    def priority(op: int) -> tuple[int, int, int]:
        return state.growth(op), -len(problem.successors[op]), op

    return order_by_priority(state, priority)


def forward_list(problem: OrderProblem) -> Order:
    """Always the ready op with the least growth, the later one among equals: the mirror image of `backward_list`."""
    state = DownsetState(to_steps(problem))
    return order_by_priority(state, lambda op: (state.growth(op), op))


LISTS: Final[Mapping[str, _OfProblem]] = MappingProxyType(
    {
        "reverse_post_order": reverse_post_order,
        "xla_list": xla_list,
        "xla_dfs": xla_dfs,
        "xla_post_order": depth_first,
        "forward_list": forward_list,
    }
)
"""As `neaptide.named_peers.LISTS` names them."""
ALL_LISTS: Final[Mapping[str, _OfProblem]] = MappingProxyType(
    {
        "program_order": lambda problem: tuple(range(problem.op_count)),
        "backward_list": lambda problem: backward_list(to_steps(problem)),
        "lpmf": lambda problem: lpmf(to_steps(problem)),
        **LISTS,
    }
)
"""With those of the default, to compare."""


def _post_order(roots: Sequence[int], children: Callable[[int], Sequence[int]]) -> list[int]:
    """Depth-first post-order without recursion; children in the order given."""
    finished: list[int] = []
    seen: set[int] = set()
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        stack = [(root, iter(children(root)))]
        while stack:
            op, rest = stack[-1]
            child = next((c for c in rest if c not in seen), None)
            if child is None:
                finished.append(op)
                stack.pop()
            else:
                seen.add(child)
                stack.append((child, iter(children(child))))
    return finished
