"""Stays on the host as changes of a sequence: where they split the spans of a storage.

Places are executions, not positions, so that a stay moves along with the steps around it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neaptide.ir.schedule import BETWEEN, HostStay

Ints: TypeAlias = NDArray[np.int64]
Span: TypeAlias = tuple[int, int]
TO_END: Final = -1
"""End of a span that nothing ends: an output keeps it, or the caller does."""
OWNED: Final = -1
"""In the place of the execution that creates an instance, or begins a span: the caller owns it, and it is there before."""
AWAY: Final = -2
"""In the place of an execution: none of this sequence, because the instance is on the host between two runs of it."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Take one instance of a storage to the host and back.

    Between two runs an instance is on the host by two transfers: one without `store` and `after`, and one without
    `before`. These are `AWAY` then.

    Attributes:
        storage: id.
        made: execution that creates the instance, or `OWNED`.
        store: execution directly behind which the copy to the host begins.
        after: execution directly behind which the device bytes end: the wait for that copy stands there.
        before: execution directly before which the load begins, and the device bytes with it. The wait for it stands
            directly before the next execution that touches the instance.
    """

    storage: int
    made: int
    store: int
    after: int
    before: int


@dataclass(frozen=True, slots=True)
class Keep:
    """Take a transfer back: the instance stays on the device."""

    transfer: Transfer


@dataclass(frozen=True, slots=True)
class InstanceUses:
    """Executions that touch one instance of a storage, in running order; the first one creates it.

    What the caller owns is there before the sequence and outlives it; the first execution of all counts as one that
    touches it, unless it is on the host when the sequence begins.

    Attributes:
        touched_by: execution ids; one may be there more than once.
        is_kept: it outlives the sequence.
        is_owned: it is there before the sequence.
        needed_by: those that do touch it, of what the caller owns.
    """

    touched_by: tuple[int, ...]
    is_kept: bool
    is_owned: bool = False
    needed_by: tuple[int, ...] = ()

    @property
    def made(self) -> int:
        """The execution that creates it, or `OWNED`."""
        return OWNED if self.is_owned else self.touched_by[0]

    @property
    def span(self) -> Span:
        return self.made, TO_END if self.is_kept else self.touched_by[-1]


@dataclass(frozen=True, slots=True)
class Stays:
    """The transfers of one storage, and what follows from them.

    Attributes:
        transfers: in running order for each instance.
        occurrences: of the instance of each transfer.
        spans: of the storage on the device.
        host_spans: for each transfer, the execution directly behind which its host bytes begin, and the one directly
            before which they end, or `TO_END`; `AWAY` for what lies between two runs.
    """

    transfers: tuple[Transfer, ...]
    occurrences: tuple[int, ...]
    spans: tuple[Span, ...]
    host_spans: tuple[Span, ...]


class StayTable:
    """The transfers of all storages of a sequence.

    Attributes:
        of: by storage, those that have any.
        anchored: by execution, the storages with a transfer that stands at it.
    """

    def __init__(self) -> None:
        self.of: dict[int, Stays] = {}
        self.anchored: dict[int, frozenset[int]] = {}

    def copy(self) -> StayTable:
        """The same, to change on its own."""
        twin = StayTable()
        twin.of, twin.anchored = self.of.copy(), self.anchored.copy()
        return twin

    def transfers(self, storage: int) -> tuple[Transfer, ...]:
        """Transfers of a storage."""
        found = self.of.get(storage)
        return () if found is None else found.transfers

    def replace(self, storage: int, stays: Stays | None) -> Stays | None:
        """Give a storage other transfers; gives those that it had. O(both)."""
        before = self.of.pop(storage, None)
        for place in () if before is None else _anchors(before):
            if left := self.anchored.pop(place) - {storage}:
                self.anchored[place] = left
        if stays is not None:
            self.of[storage] = stays
            for place in _anchors(stays):
                self.anchored[place] = self.anchored.get(place, frozenset()) | {storage}
        return before

    def host_bytes(self, places: Sequence[int], in_bodies: Ints, nbytes: Callable[[int], int]) -> Ints:
        """Most bytes on the host from the begin of each position to that of the next one.

        Args:
            places: position by execution.
            in_bodies: by position, what the body of a loop has there.
            nbytes: of a storage.
        """
        count = len(in_bodies)
        spans = (
            (
                BETWEEN if store == AWAY else places[store],
                count if back in {TO_END, AWAY} else places[back],
                nbytes(storage),
            )
            for storage, stays in self.of.items()
            for store, back in stays.host_spans
        )
        return bytes_on_host(spans, in_bodies)

    def positions(self, places: Sequence[int], count: int) -> tuple[HostStay, ...]:
        """All transfers by position, in the order in which they are stored, then by storage."""
        found = [
            HostStay(
                transfer.storage,
                occurrence,
                *(
                    BETWEEN if e == AWAY else count if e == TO_END else places[e]
                    for e in (transfer.store, transfer.after, transfer.before, back)
                ),
            )
            for stays in self.of.values()
            for transfer, occurrence, (_, back) in zip(
                stays.transfers, stays.occurrences, stays.host_spans, strict=True
            )
        ]
        return tuple(sorted(found, key=lambda stay: (stay.store_behind, stay.storage, stay.occurrence)))


def bytes_on_host(spans: Iterable[tuple[int, int, int]], in_bodies: Ints) -> Ints:
    """Most bytes on the host from the begin of each position to that of the next one. O(positions + spans).

    Args:
        spans: of stays: directly behind which position the host bytes begin, `BETWEEN` for what is there before,
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


def _anchors(stays: Stays) -> set[int]:
    """Executions at which transfers of a storage stand."""
    return {
        place for transfer in stays.transfers for place in (transfer.store, transfer.after, transfer.before)
    } - {AWAY}


def stay(
    transfers: Collection[Transfer],
    instances: Sequence[InstanceUses],
    writers: Collection[int],
    places: Sequence[int],
) -> Stays:
    """What some transfers of one storage make of its spans. O((uses + transfers) log transfers).

    Args:
        transfers: in any order.
        instances: of the storage, in order of creation.
        writers: executions that overwrite it.
        places: position by execution.

    Raises:
        ValueError: a transfer has no meaning here: its instance is not made or not needed any more, is touched while it
            is away or overwritten while it is copied, or has another transfer at that time.
    """
    found: list[tuple[Transfer, int, Span]] = []
    spans: list[Span] = []
    by_instance: dict[int, list[Transfer]] = {}
    for transfer in transfers:
        by_instance.setdefault(transfer.made, []).append(transfer)
    for occurrence, instance in enumerate(instances):
        start, end = instance.span
        mine = by_instance.pop(instance.made, [])
        free_from = 0 if instance.is_owned else places[start]
        for transfer in sorted(mine, key=lambda t: -1 if t.after == AWAY else places[t.after]):
            back = _back(transfer, instance, writers, places, free_from)
            if transfer.after != AWAY:
                spans.append((start, transfer.after))
            elif start != OWNED:
                raise ValueError(f"{transfer} is away before the sequence, as another transfer is")
            start = transfer.before
            free_from = len(places) if back in {TO_END, AWAY} else places[back]
            found.append((transfer, occurrence, (transfer.store, back)))
        if start != AWAY:
            spans.append((start, end))
    for left in by_instance.values():
        raise ValueError(f"{left[0]} names an instance that is not made")
    return Stays(
        tuple(transfer for transfer, _, _ in found),
        tuple(occurrence for _, occurrence, _ in found),
        tuple(spans),
        tuple(span for _, _, span in found),
    )


def _back(
    transfer: Transfer,
    instance: InstanceUses,
    writers: Collection[int],
    places: Sequence[int],
    free_from: int,
) -> int:
    """The first execution that touches an instance again, `TO_END`, or `AWAY` where it does not return."""
    if AWAY in {transfer.store, transfer.before}:
        _check_between(transfer, instance)
    store, gone, load = (
        -1 if transfer.store == AWAY else places[transfer.store],
        -1 if transfer.after == AWAY else places[transfer.after],
        len(places) if transfer.before == AWAY else places[transfer.before],
    )
    if not (free_from <= store or transfer.store == AWAY) or not store <= gone < load:
        raise ValueError(f"{transfer} does not leave and return in this order, behind what comes before it")
    for execution in instance.needed_by if transfer.store == AWAY else instance.touched_by:
        place = places[execution]
        if gone < place < load:
            raise ValueError(f"{transfer} is away where execution {execution} touches it")
        if store < place <= gone and execution in writers:
            raise ValueError(f"{transfer} is overwritten by execution {execution} while it is copied")
        if place >= load:
            return execution
    if transfer.before == AWAY:
        return AWAY
    if instance.is_kept and transfer.store != AWAY:
        return TO_END
    raise ValueError(f"{transfer} returns when nothing needs it")


def _check_between(transfer: Transfer, instance: InstanceUses) -> None:
    """Refuse to be away between two runs what is not there then."""
    is_before, is_behind = transfer.store == AWAY, transfer.before == AWAY
    if is_before != (transfer.after == AWAY) or (is_before and is_behind):
        raise ValueError(f"{transfer} neither leaves nor returns")
    if (is_before and not instance.is_owned) or (is_behind and not instance.is_kept):
        raise ValueError(f"{transfer} is away between two runs, and its instance is not there then")
