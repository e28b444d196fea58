"""Random ordering problems of known families, in the neutral form: for tests, brute force and benchmarks.

In the families each operation makes one tensor of 1 to 100 bytes that all its successors read; tensors that nothing
reads are results. `random_order` has everything that the form can say.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from neaptide_corpus.order_forms import FormBuilder, OrderForm

_LARGEST = 100


def from_predecessors(
    sizes: Sequence[int], predecessors: Sequence[Sequence[int]], name: str = ""
) -> OrderForm:
    """Operations that each make one tensor, read by all their successors. O(nodes + edges).

    Args:
        sizes: bytes of the tensors.
        predecessors: by operation, earlier operations whose tensors it reads.
        name: for reports.
    """
    form = FormBuilder()
    made: list[str] = []
    read: set[int] = set()
    for size, earlier in zip(sizes, predecessors, strict=True):
        made += form.op("op", reads=[made[i] for i in earlier], sizes=[size])
        read.update(earlier)
    form.keep(*(storage for i, storage in enumerate(made) if i not in read))
    return form.finish(name)


def gnp(nodes: int, seed: int, *, degree: float = 3.0) -> OrderForm:
    """Every pair of operations is an edge with the same probability: width grows with the size. O(nodes^2).

    Args:
        nodes: operations.
        seed: of all choices.
        degree: expected number of operands of the last operation.
    """
    rng = _generator(seed)
    probability = min(1.0, degree / max(nodes - 1, 1))
    predecessors = [[i for i in range(j) if rng.random() < probability] for j in range(nodes)]
    return from_predecessors(_sizes(nodes, rng), predecessors, f"gnp n={nodes} seed={seed}")


def local(nodes: int, seed: int, *, reach: int = 8, most: int = 3) -> OrderForm:
    """Operands come from the last `reach` operations, 1 to `most` of them: width is bounded, as in real programs."""
    rng = _generator(seed)
    predecessors: list[list[int]] = []
    for j in range(nodes):
        near = range(max(0, j - reach), j)
        predecessors.append(sorted(rng.sample(near, min(len(near), rng.randint(1, most)))))
    return from_predecessors(_sizes(nodes, rng), predecessors, f"local n={nodes} seed={seed}")


def layered(nodes: int, seed: int, *, width: int = 5, most: int = 3) -> OrderForm:
    """Layers of `width` operations; operands come from the layer before, which is read whole."""
    rng = _generator(seed)
    predecessors: list[list[int]] = []
    for j in range(nodes):
        layer = j // width
        before = range((layer - 1) * width, layer * width) if layer else range(0)
        chosen = set(rng.sample(before, min(len(before), rng.randint(1, most))))
        if before:
            chosen.add(before[j % width])  # so that nothing of the layer before stays unread
        predecessors.append(sorted(chosen))
    return from_predecessors(_sizes(nodes, rng), predecessors, f"layered n={nodes} seed={seed}")


def wide(nodes: int, seed: int, *, width: int | None = None) -> OrderForm:
    """Each operation reads one or two of about `width` tensors that are still waiting for a reader. O(nodes).

    Args:
        nodes: operations.
        seed: of all choices.
        width: tensors that wait; a tenth of the operations if None.
    """
    rng = _generator(seed)
    limit = max(2, nodes // 10 if width is None else width)
    waiting: list[int] = []
    predecessors: list[list[int]] = []
    for j in range(nodes):
        draining = nodes - j <= len(waiting)  # so that little is left at the end
        count = 2 if draining else rng.randint(1, 2) if len(waiting) >= limit else rng.randint(0, 1)
        chosen: set[int] = set()
        for _ in range(min(count, len(waiting))):
            index = rng.randrange(len(waiting))
            chosen.add(waiting[index])
            if draining or rng.random() < 0.8:  # the rest is read again later
                waiting[index] = waiting[-1]
                waiting.pop()
        waiting.append(j)
        predecessors.append(sorted(chosen))
    return from_predecessors(_sizes(nodes, rng), predecessors, f"wide n={nodes} seed={seed}")


def repeated_blocks(nodes: int, seed: int, *, block: int = 50, reach: int = 6) -> OrderForm:
    """One random block, again and again in a row, each copy reading what the one before it made. O(nodes).

    A block has one way in and one way out: its first operation starts everything, its last ends everything.

    Args:
        nodes: operations, rounded down to whole blocks.
        seed: of the block.
        block: operations in it, at least 3.
        reach: operands inside come from so many operations before.
    """
    rng = _generator(seed)
    inner: list[list[int]] = [[]]
    for j in range(1, block - 1):
        near = range(max(0, j - reach), j)
        inner.append(sorted(rng.sample(near, min(len(near), rng.randint(1, 2)))))
    read = {i for earlier in inner for i in earlier}
    inner.append([i for i in range(block - 1) if i not in read])
    sizes = _sizes(block, rng)
    predecessors: list[list[int]] = []
    for start in range(0, nodes // block * block, block):
        predecessors += [[start + i for i in earlier] for earlier in inner]
        if start:
            predecessors[start] = [start - 1]
    name = f"blocks of {block} n={len(predecessors)} seed={seed}"
    return from_predecessors(sizes * (nodes // block), predecessors, name)


def random_order(
    seed: int,
    nodes: int,
    *,
    workspace: bool = True,
    in_place: bool = True,
    multi_output: bool = True,
    inputs: bool = True,
    resident: bool = True,
    mutation: bool = True,
    control: bool = True,
    unread: bool = True,
) -> OrderForm:
    """A random problem with everything that the form can say; the same arguments give the same problem.

    Args:
        seed: of all choices.
        nodes: operations.
        workspace: with scratch bytes.
        in_place: with results that may take over the bytes of an operand.
        multi_output: with operations of two or three results.
        inputs: with storages that no operation writes, freed after their last reader, kept if they are outputs.
        resident: with storages that are there from start to end.
        mutation: with operations that write a storage that is there already, or nothing at all.
        control: with edges that carry no data.
        unread: with results that nothing reads and nobody keeps.
    """
    rng = _generator(seed)
    form = FormBuilder()
    sizes: dict[str, int] = {}
    for _ in range(rng.randint(1, 3) if inputs else 0):
        size = rng.randint(1, 20)
        sizes[form.storage(size, resident=resident and rng.random() < 0.3)] = size
    ops: list[str] = []
    read: set[str] = set()
    for _ in range(nodes):
        known = list(sizes)
        reads = rng.sample(known, min(len(known), rng.randint(0, 3)))
        changed = [s for s in reads if mutation and rng.random() < 0.15]
        made_sizes = [rng.randint(1, 20) for _ in range(rng.randint(1, 3) if multi_output else 1)]
        if mutation and reads and rng.random() < 0.1:
            made_sizes = []
        free = [s for s in reads if s not in changed]
        over = [(0, rng.choice(free))] if in_place and free and made_sizes and rng.random() < 0.4 else []
        after = [op for op in ops[-4:] if rng.random() < 0.1] if control else []
        scratch = rng.choice((0, 0, rng.randint(1, 20))) if workspace else 0
        made = form.op(
            "op", reads=reads, sizes=made_sizes, writes=changed, workspace=scratch, in_place=over, after=after
        )
        ops.append(form.last_op())
        read.update(reads)
        sizes.update(zip(made, made_sizes, strict=True))
    form.keep(*(s for s in sizes if rng.random() < (0.15 if s in read else 0.5 if unread else 1.0)))
    return form.finish(f"random n={nodes} seed={seed}")


def _sizes(nodes: int, rng: random.Random) -> list[int]:
    return [rng.randint(1, _LARGEST) for _ in range(nodes)]


def _generator(seed: int) -> random.Random:
    return random.Random(seed)
