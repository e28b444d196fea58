"""Trees in polynomial time: in-trees by Liu's rule, and out-trees with a buffer per edge as the same thing reversed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.errors import VerifyError
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.regions.merge import UpHeap
from neaptide.schedule.order.regions.segments import Segment, flatten, peak_rise


@dataclass(frozen=True, slots=True)
class TreeOrder:
    """A best order of a tree.

    Attributes:
        order: nodes.
        peak_bytes: of that order, and of no order less.
        segments: canonical; the order dominates every other one of the tree.
    """

    order: tuple[int, ...]
    peak_bytes: int
    segments: tuple[Segment, ...]


def order_in_tree(parents: Sequence[int], nbytes: Sequence[int], workspace: Sequence[int]) -> TreeOrder:
    """Best order of a tree in which every node reads what its children made. O(n log^2 n).

    Liu, "An application of generalized tree pebbling to sparse matrix factorization" (1987), with workspace. While a
    node runs, its children's outputs, its own and its workspace are there.

    Args:
        parents: by node, who reads its output; -1 for a root, whose output is kept. Several roots make a forest.
        nbytes: by node, its output.
        workspace: by node.

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
    heaps: list[UpHeap] = [UpHeap() for _ in parents]
    for node in reversed(top_down):
        heap = heaps[node]
        for child in children[node]:
            heap = heap.absorb(heaps[child])
        heap.append(nbytes[node] + workspace[node], nbytes[node] - heap.level, node)
        heaps[node] = heap
    whole = UpHeap()
    for root in roots:
        whole = whole.absorb(heaps[root])
    segments = tuple(whole.drain())
    order = tuple(op for segment in segments for op in flatten(segment.ops))
    return TreeOrder(order, peak_rise(segments), segments)


def order_out_tree(parents: Sequence[int], nbytes: Sequence[int], workspace: Sequence[int]) -> TreeOrder:
    """Best order of a tree in which every node has a buffer of its own from its parent. O(n log^2 n).

    Time reversed it is an in-tree. Only for a buffer per edge: with one output shared by all children the problem is
    strongly NP-complete (Jin et al., arXiv 2312.13526) and `regions.reduce` is what applies.

    Args:
        parents: by node, who makes its buffer; -1 for a root, whose buffer is there from the start.
        nbytes: by node, the buffer that it reads.
        workspace: by node.

    Raises:
        VerifyError: the parents form a circle.
    """
    backwards = order_in_tree(parents, nbytes, workspace)
    segments = tuple(Segment(rise - delta, -delta, ops) for rise, delta, ops in reversed(backwards.segments))
    turned = tuple(Segment(rise, delta, flatten(ops)[::-1]) for rise, delta, ops in segments)
    return TreeOrder(backwards.order[::-1], backwards.peak_bytes, turned)


def in_tree_of(problem: OrderProblem) -> TreeOrder | None:
    """Best order of a problem that is an in-tree or a forest of them; None if it is not. O(n log^2 n).

    Each op makes one storage that at most one other op reads; nothing is there from the start, nothing is mutated,
    kept (but at the roots), shared in place or ordered by `after` alone.
    """
    count = problem.op_count
    parents, nbytes = [-1] * count, [0] * count
    if len(problem.storages) != count:
        return None
    made = [0] * count
    for index, storage in enumerate(problem.storages):
        accessors = problem.accessors[index]
        if problem.from_start[index] or not 1 <= len(accessors) <= 2:
            return None
        maker = accessors[0]
        made[maker] += 1
        nbytes[maker] = storage.nbytes
        if len(accessors) == 2:
            parents[maker] = accessors[1]
        if storage.output != (len(accessors) == 1):
            return None
    for index, op in enumerate(problem.ops):
        if made[index] != 1 or len(op.writes) != 1 or op.in_place:
            return None
        expected = () if parents[index] < 0 else (parents[index],)
        if problem.successors[index] != expected:
            return None
    return order_in_tree(parents, nbytes, [op.workspace for op in problem.ops])
