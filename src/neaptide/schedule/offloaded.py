"""A sequence with offloads, known by position: its bytes here and there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from neaptide.ir.schedule import BETWEEN, Offload
from neaptide.schedule.evaluate import Evaluator, Ints


@dataclass(frozen=True, slots=True)
class OffloadedSequence:
    """A sequence with offloads, which its evaluator knows nothing of.

    Attributes:
        bytes: at each position, with what the caller owns and with workspace.
        host_bytes: most bytes on the host from the begin of each position to that of the next one.
    """

    evaluator: Evaluator
    bytes: Ints
    host_bytes: Ints

    @property
    def peak(self) -> int:
        """Highest bytes at any position, workspace included: what a budget is held on."""
        return int(self.bytes.max()) if len(self.bytes) else self.evaluator.peak

    @property
    def peak_without_workspace(self) -> int:
        """Highest bytes of storages at any position, those in the bodies of loops included."""
        if not len(self.bytes):
            return self.evaluator.peak
        return int((self.bytes - self.evaluator.workspace).max())

    @property
    def peak_host_bytes(self) -> int:
        """Highest bytes on the host."""
        return int(self.host_bytes.max(initial=0))


def with_offloads(evaluator: Evaluator, offloads: Iterable[Offload] = ()) -> OffloadedSequence:
    """A sequence whose storages are away where legal offloads say. O(length of the sequence + offloads)."""
    known = [(offload, evaluator.problem.moved_bytes(offload.storage)) for offload in offloads]
    count = len(evaluator.order)
    change = np.zeros(count + 1, dtype=np.int64)
    for offload, nbytes in known:
        change[0 if offload.begins_before else offload.gone_after + 1] -= nbytes
        change[count if offload.ends_after else offload.load_before] += nbytes
    spans = ((s.store_after, count if s.ends_after else s.back_before, nbytes) for s, nbytes in known)
    there = evaluator.bytes + np.cumsum(change)[:count]
    return OffloadedSequence(evaluator, there, bytes_on_host(spans, host_bytes_in_bodies(evaluator)))


def host_bytes_in_bodies(evaluator: Evaluator) -> Ints:
    """Most bytes that the body of a loop has on the host, by position. O(steps)."""
    nbytes = evaluator.problem.body_host_bytes
    return np.array([nbytes[evaluator.node_of[e]] for e in evaluator.order.tolist()], dtype=np.int64)


def bytes_on_host(spans: Iterable[tuple[int, int, int]], in_bodies: Ints) -> Ints:
    """Most bytes on the host from the begin of each position to that of the next one. O(positions + spans).

    Args:
        spans: of offloads: directly after which position the host bytes begin, `BETWEEN` for what is there before,
            directly before which one they end, and how many they are.
        in_bodies: by position, what the body of a loop has there while it runs.
    """
    count = len(in_bodies)
    stored = np.zeros(count + 1, dtype=np.int64)
    change = np.zeros(count + 1, dtype=np.int64)
    for store, back, nbytes in spans:
        if store == BETWEEN:
            change[0] += nbytes
        else:
            stored[store] += nbytes
        change[back] -= nbytes
    behind = np.cumsum((change + stored)[:count])
    most: Ints = np.maximum(behind, behind - stored[:count] + in_bodies)
    return most
