"""OPASS's search over its transfer graph: states that weigh as much are one, and good ones with chances left come first.

After "Orchestrating optimization passes of machine learning compiler for reducing memory footprints of computation graphs" (Yu
et al., Journal of Systems Architecture 173, 2026), as its authors describe it. A state is known by how many inputs, outputs and
operators it has and by its memory. Its score is the memory of the start over its own, times its opportunities: the passes not
tried there. A state is drawn by its rank among the scores, and one of its opportunities at random. A new state inherits the
opportunities of the one that it was made from, and the passes that were tried on the way, which are probed again with a small
probability. Nothing is carried from one graph to another.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

from neaptide.planner.passes.archive import Archive, Entry, Move

BASE: Final = 0.05
"""Weight of the last rank in the draw of a state, where the first has 1."""
PROBE: Final = 0.03
"""Probability that a pass that was tried on the way is tried again."""


@dataclass
class _Node:
    """A state of the transfer graph."""

    entry: int
    nbytes: int
    opportunities: set[str]
    done: set[str]


class TransferGraph:
    """The search of OPASS, on an archive of states."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._nodes: dict[tuple[int, ...], _Node] = {}
        self._last: tuple[_Node, Move] | None = None

    def pick(self, archive: Archive[Any]) -> Move | None:
        """An opportunity of a state, both drawn; None where no state has one."""
        self._grow(archive)
        while True:
            nodes = [node for node in self._nodes.values() if self._open(node, archive)]
            if not nodes:
                return None
            node = self._ranked_draw(nodes, archive.entries[0].nbytes)
            is_probe = bool(node.done) and self._draw.random() < PROBE
            name = self._draw.choice(sorted(node.done if is_probe else node.opportunities))
            entry = archive.entries[node.entry]
            node.opportunities.discard(name)
            node.done.add(name)
            if name not in entry.measured.facts or name in entry.tried:
                continue  # it finds no place, or is known: that costs no measurement
            move = Move(node.entry, name)
            self._last = node, move
            return move

    def _open(self, node: _Node, archive: Archive[Any]) -> bool:
        entry = archive.entries[node.entry]
        return any(name in node.opportunities for name in entry.untried())

    def _ranked_draw(self, nodes: list[_Node], start: int) -> _Node:
        """One of the states, the better its score the likelier."""
        ranked = sorted(nodes, key=lambda node: -start / max(node.nbytes, 1) * len(node.opportunities))
        weights = [BASE ** (rank / len(ranked)) for rank in range(len(ranked))]
        return self._draw.choices(ranked, weights)[0]

    def _grow(self, archive: Archive[Any]) -> None:
        """Take in where the last move led."""
        if self._last is None:
            self._at(archive.entries[0], set(archive.entries[0].measured.facts), set())
            return
        node, move = self._last
        before = archive.entries[move.entry]
        reached = before.tried[move.name]
        if reached is not None:
            entry = archive.entries[reached]
            new = set(entry.measured.facts) - set(before.measured.facts)
            self._at(entry, (node.opportunities | new) - node.done, set(node.done))

    def _at(self, entry: Entry[Any], opportunities: set[str], done: set[str]) -> None:
        """The node of an entry; one that weighs as much as another is that other."""
        key = (*entry.measured.counts, entry.nbytes)
        if key not in self._nodes:
            self._nodes[key] = _Node(entry.number, entry.nbytes, opportunities, done)


def strategy(seed: int) -> TransferGraph:
    """With the numbers of a seed."""
    return TransferGraph(seed)
