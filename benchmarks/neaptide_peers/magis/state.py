"""A state of MAGIS's search: what is done to a step, as data. The graph stays as it is.

Chen et al., MAGIS (ASPLOS 2024), section 5: re-materialization and swapping as rewrites with inverses, and the F-tree.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from neaptide_peers.magis.f_tree_moves import NO_PARTS, Parts

Again: TypeAlias = tuple[int, int]
"""(node, user): the node runs again directly before a later user, which from then on uses what it makes then."""

Away: TypeAlias = tuple[int, int]
"""(tensor, user): the tensor is on the host from its last use before a later user on, and back for that."""


@dataclass(frozen=True, slots=True)
class State:
    """What is done to a step.

    Attributes:
        parts: regions of the F-tree that run in parts.
        again: recomputations.
        away: offloads, of tensors outside all regions.
        digest: of all that, the same in every process; changes take O(1) for each entry that comes or goes.
    """

    parts: Parts = NO_PARTS
    again: frozenset[Again] = frozenset()
    away: frozenset[Away] = frozenset()
    digest: int = field(default=0, compare=False)

    def with_parts(self, parts: Parts) -> State:
        """The state with other regions in parts."""
        changed = set(self.parts) ^ set(parts)
        return replace(self, parts=parts, digest=self._toggled("parts", changed))

    def toggled_again(self, entry: Again) -> State:
        """The state with a recomputation more, or less where it was there."""
        return replace(self, again=self.again ^ {entry}, digest=self._toggled("again", {entry}))

    def toggled_away(self, entry: Away) -> State:
        """The state with an offload on the host more, or less where it was there."""
        return replace(self, away=self.away ^ {entry}, digest=self._toggled("away", {entry}))

    def _toggled(self, kind: str, entries: set[tuple[int, int]]) -> int:
        digest = self.digest
        for entry in entries:
            digest ^= _number(kind, entry)
        return digest


def _number(kind: str, entry: tuple[int, int]) -> int:
    """64 bits for an entry (Zobrist 1970)."""
    return int.from_bytes(hashlib.blake2b(repr((kind, entry)).encode(), digest_size=8).digest(), "big")
