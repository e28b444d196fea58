"""The ordering problem: storages, operations, and which must come first. Integers only; no recomputation.

Written in the neutral form `neaptide.order/1` (see `schedule.order.neutral`), made from graphs by
`schedule.order.from_graph`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from neaptide.errors import UsageError, VerifyError

_LARGEST: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class OrderStorage:
    """Bytes that operations read and write; resident, from the start to the end, or an output, at the end."""

    name: str
    nbytes: int
    resident: bool = False
    output: bool = False


@dataclass(frozen=True, slots=True)
class OrderOp:
    """One operation: storages that it reads, and that it makes or overwrites, by index without duplicates.

    Attributes:
        in_place: pairs (written, read): the written storage may take over the bytes of the read one where this is
            the last use of the read one.
        after: operations that must have run, by index, beside those that data and mutation demand.
    """

    name: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    workspace: int = 0
    in_place: tuple[tuple[int, int], ...] = ()
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OrderProblem:
    """Operations in list order (the baseline) over storages.

    A storage that no operation writes is there from the start and, unless `resident` or `output`, is freed after
    its last reader. One that is written lives from its first writer (or from the start, if it is resident or read
    before any write in list order) to its last access, or to the end if `output`; written and never read, it is
    freed after its last writer unless `output`. While an operation runs, all that it reads and writes and its
    workspace are there together, less what `in_place` lets it share. Residents are counted.

    Accesses to one storage with a writer among them keep their list order.

    Attributes:
        predecessors: by op, ops that must run first (data, mutation and `after`), ascending, not transitively reduced.
        accessors: by storage, ops that read or write it, ascending.
        from_start: by storage, whether it is there before the first op.
    """

    storages: tuple[OrderStorage, ...]
    ops: tuple[OrderOp, ...]
    name: str = ""
    predecessors: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    successors: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    accessors: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    from_start: tuple[bool, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        most = sum(storage.nbytes for storage in self.storages) + max(
            (op.workspace for op in self.ops), default=0
        )
        if most >= _LARGEST:
            raise UsageError(
                "the sizes of the ordering problem are too large together",
                why=f"they must stay below {_LARGEST} bytes",
                next_step="correct the sizes, which are in bytes",
            )
        before, accessors, from_start = _derive(self.storages, self.ops)
        object.__setattr__(self, "predecessors", before)
        object.__setattr__(self, "successors", inverse(before, len(self.ops)))
        object.__setattr__(self, "accessors", accessors)
        object.__setattr__(self, "from_start", from_start)

    @property
    def op_count(self) -> int:
        return len(self.ops)

    def is_order(self, order: Sequence[int]) -> bool:
        """Whether a sequence of op indices is a legal complete order. O(size)."""
        if sorted(order) != list(range(len(self.ops))):
            return False
        position_of = {op: position for position, op in enumerate(order)}
        return all(
            position_of[b] < position_of[op] for op, before in enumerate(self.predecessors) for b in before
        )


def inverse(of: Iterable[Iterable[int]], count: int) -> tuple[tuple[int, ...], ...]:
    """By number below a count, the numbers of those that it is in. O(size)."""
    found: list[list[int]] = [[] for _ in range(count)]
    for number, others in enumerate(of):
        for other in others:
            found[other].append(number)
    return tuple(map(tuple, found))


def _derive(
    storages: tuple[OrderStorage, ...], ops: tuple[OrderOp, ...]
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...], tuple[bool, ...]]:
    """Predecessors, accessors and what is there from the start. O(size + readers between writers)."""
    before: list[set[int]] = [set(op.after) for op in ops]
    accessors: list[list[int]] = [[] for _ in storages]
    last_writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    from_start = [storage.resident for storage in storages]
    for index, op in enumerate(ops):
        if any(not 0 <= other < len(ops) or other >= index for other in op.after):
            raise VerifyError(f"op {op.name} comes before an op that it names in `after`")
        for storage in dict.fromkeys((*op.reads, *op.writes)):
            accessors[storage].append(index)
        for storage in op.reads:
            if storage in last_writer:
                before[index].add(last_writer[storage])
            else:
                from_start[storage] = True
        for storage in op.writes:
            before[index].update(readers.pop(storage, ()))
            if storage in last_writer:
                before[index].add(last_writer[storage])
        for storage in op.writes:
            last_writer[storage] = index
        for storage in op.reads:
            readers.setdefault(storage, []).append(index)
        before[index].discard(index)
    for storage in range(len(storages)):
        if storage not in last_writer:
            from_start[storage] = True
    return (
        tuple(tuple(sorted(earlier)) for earlier in before),
        tuple(map(tuple, accessors)),
        tuple(from_start),
    )
