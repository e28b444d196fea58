"""Trees in polynomial time: in-trees by Liu's rule, and out-trees with a buffer per edge as the same thing reversed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.errors import VerifyError
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.regions.segments import Segment, canonical, flatten, merge_independent
from neaptide.schedule.order.steps import to_steps
from neaptide_peers.structures.refusal import Refusal, refuse_couplings
from neaptide_peers.structures.up_heap import UpHeap, peak_rise


@dataclass(frozen=True, slots=True)
class TreeOrder:
    """A best order of a tree.

    Attributes:
        order: nodes.
        peak_bytes: of that order, and of no order less; above the bytes at the start.
        segments: canonical; the order dominates every other one of the tree.
        degree: most children of a node.
    """

    order: tuple[int, ...]
    peak_bytes: int
    segments: tuple[Segment, ...]
    degree: int


def order_in_tree(parents: Sequence[int], rise: Sequence[int], delta: Sequence[int]) -> TreeOrder:
    """Best order of a tree in which every node runs after its children.

    Liu, "An application of generalized tree pebbling to sparse matrix factorization" (1987). O(n log^2 n) where no
    node frees more than its subtree holds, as in Liu's trees; else O(n x segments of a subtree), by two-sided merges.

    Args:
        parents: by node, the node that runs after it; -1 for a root. Several roots make a forest.
        rise: by node, highest bytes while it runs above those before it.
        delta: by node, bytes after it less bytes before it.

    Raises:
        VerifyError: the parents form a circle.
    """
    children: list[list[int]] = [[] for _ in parents]
    roots: list[int] = []
    for node, parent in enumerate(parents):
        (roots if parent < 0 else children[parent]).append(node)
    top_down = list(roots)
    for node in top_down:
        top_down += children[node]
    if len(top_down) != len(parents):
        raise VerifyError("the parents of a tree form a circle")
    held = list(delta)  # by node, what its subtree leaves
    for node in reversed(top_down):
        held[node] += sum(held[child] for child in children[node])
    merge = _merge_climbing if all(nbytes >= 0 for nbytes in held) else _merge_any
    segments = tuple(
        merge(top_down[::-1], children, roots, [*map(Segment, rise, delta, range(len(parents)))])
    )
    order = tuple(op for segment in segments for op in flatten(segment.ops))
    degree = max(map(len, children), default=0)
    return TreeOrder(order, peak_rise(segments), segments, degree)


def _merge_climbing(
    bottom_up: Sequence[int],
    children: Sequence[Sequence[int]],
    roots: Sequence[int],
    steps: Sequence[Segment],
) -> list[Segment]:
    """Liu's rule where no subtree ever holds less than at its start: one heap for each."""
    heaps: list[UpHeap] = [UpHeap() for _ in steps]
    for node in bottom_up:
        heap = heaps[node]
        for child in children[node]:
            heap = heap.absorb(heaps[child])
        heap.append(*steps[node])
        heaps[node] = heap
    whole = UpHeap()
    for root in roots:
        whole = whole.absorb(heaps[root])
    return whole.drain()


def _merge_any(
    bottom_up: Sequence[int],
    children: Sequence[Sequence[int]],
    roots: Sequence[int],
    steps: Sequence[Segment],
) -> list[Segment]:
    profiles: list[list[Segment]] = [[] for _ in steps]
    for node in bottom_up:
        below = merge_independent([profiles[child] for child in children[node]])
        profiles[node] = canonical([*below, steps[node]])
    return merge_independent([profiles[root] for root in roots])


def order_out_tree(parents: Sequence[int], rise: Sequence[int], delta: Sequence[int]) -> TreeOrder:
    """Best order of a tree in which every node runs before its children: an in-tree with time reversed.

    Only for a buffer per edge: with one output shared by all children the problem is strongly NP-complete (Jin et al.,
    arXiv 2312.13526) and `regions.reduce` is what applies.

    Args:
        parents: by node, the node that runs before it; -1 for a root.
        rise: by node, highest bytes while it runs above those before it.
        delta: by node, bytes after it less bytes before it.

    Raises:
        VerifyError: the parents form a circle.
    """
    turned_rise = [high - change for high, change in zip(rise, delta, strict=True)]
    backwards = order_in_tree(parents, turned_rise, [-change for change in delta])
    segments = tuple(
        Segment(high - change, -change, flatten(ops)[::-1])
        for high, change, ops in reversed(backwards.segments)
    )
    return TreeOrder(backwards.order[::-1], peak_rise(segments), segments, backwards.degree)


def tree_of(problem: OrderProblem) -> TreeOrder:
    """Best order of a problem that is an in-tree, an out-tree with a buffer per edge, or a forest of one of them.

    Dependencies are looked at transitively reduced.

    Raises:
        Refusal: names the op or the storage that breaks the structure.
    """
    steps = to_steps(problem)
    refuse_couplings(problem, steps)
    before = [sorted(earlier) for earlier in steps.predecessors]
    after: list[list[int]] = [[] for _ in before]
    for op, earlier in enumerate(before):
        for other in earlier:
            after[other].append(op)
    names = [op.name for op in problem.ops]
    forks = [op for op, later in enumerate(after) if len(later) > 1]
    joins = [op for op, earlier in enumerate(before) if len(earlier) > 1]
    if forks and joins:
        raise Refusal(
            f"op {names[forks[0]]} comes before several ops and op {names[joins[0]]} after several: "
            "a tree has only one of the two"
        )
    if forks:
        parents = [earlier[0] if earlier else -1 for earlier in before]
        return order_out_tree(parents, steps.rise, steps.delta)
    parents = [later[0] if later else -1 for later in after]
    return order_in_tree(parents, steps.rise, steps.delta)
