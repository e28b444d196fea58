"""Which bytes an operation may take over from an operand that dies there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neaptide.schedule.order.problem import OrderOp, OrderProblem


@dataclass(frozen=True, slots=True)
class Takeover:
    """A storage that an operation makes in the bytes of one whose last use it is, and what that saves."""

    written: int
    read: int
    nbytes: int


def takeovers(problem: OrderProblem, op: int) -> tuple[Takeover, ...]:
    """The `in_place` pairs of an operation that can ever save bytes, in the order given.

    The written storage must come into being here, and the read one must have been there before, not be overwritten
    here, and be allowed to die.
    """
    record = problem.ops[op]
    found = []
    for written, read in dict.fromkeys(record.in_place):
        source = problem.storages[read]
        if (
            is_created_by(problem, written, op)
            and not is_created_by(problem, read, op)
            and read in record.reads
            and read not in record.writes
            and not source.resident
            and not source.output
        ):
            found.append(Takeover(written, read, min(source.nbytes, problem.storages[written].nbytes)))
    return tuple(pair for pair in found if pair.nbytes > 0)


def is_created_by(problem: OrderProblem, storage: int, op: int) -> bool:
    """Whether a storage comes into being at an operation: its first access, and not there from the start."""
    accessors = problem.accessors[storage]
    return not problem.from_start[storage] and bool(accessors) and accessors[0] == op


def created_bytes(problem: OrderProblem, op: int) -> int:
    """Bytes that come into being at an operation."""
    spots = touched(problem.ops[op])
    return sum(problem.storages[s].nbytes for s in spots if is_created_by(problem, s, op))


def touched(op: OrderOp) -> tuple[int, ...]:
    """Storages that an operation reads or writes, once each."""
    return tuple(dict.fromkeys((*op.reads, *op.writes)))


def shared_bytes(pairs: Sequence[Takeover]) -> int:
    """Most bytes that the given takeovers save together, each storage taking part once.

    The best matching, so that one more dying operand never saves less. Almost always there is one pair, or pairs
    without a storage in common; the general case is an assignment problem.
    """
    if not pairs:
        return 0
    if len(pairs) == 1:
        return pairs[0].nbytes
    if len({pair.written for pair in pairs}) == len(pairs) == len({pair.read for pair in pairs}):
        return sum(pair.nbytes for pair in pairs)
    if len({pair.written for pair in pairs}) == 1 or len({pair.read for pair in pairs}) == 1:
        return max(pair.nbytes for pair in pairs)
    from scipy.optimize import linear_sum_assignment

    rows = {written: row for row, written in enumerate(dict.fromkeys(pair.written for pair in pairs))}
    columns = {read: column for column, read in enumerate(dict.fromkeys(pair.read for pair in pairs))}
    gain = np.zeros((len(rows), len(columns)), dtype=np.int64)
    for pair in pairs:
        gain[rows[pair.written], columns[pair.read]] = pair.nbytes
    return int(gain[linear_sum_assignment(gain, maximize=True)].sum())
