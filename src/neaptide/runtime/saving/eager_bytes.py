"""How many bytes an eager step takes at most where what autograd saves waits in a file. From above; nothing is run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from neaptide.frontends.programs.captured import CapturedProgram
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.runtime.saving.scratch_file import LEAST_BYTES

_TOGETHER: Final = 8
"""Operations at most of a formula of a backward before one that reads what was saved for it, where its beginning is not known."""
_TEMPORARY: Final = 3
"""Operations after its last use that a number of a formula may live: to the end of the expression that it is part of."""
_TRIES: Final = 8
_FORWARD: Final = "forward"
_OUTERMOST: Final = 1
"""Names in the path of a module whose results the step itself may hold."""


@dataclass(frozen=True, slots=True)
class _Saved:
    """A storage that autograd saves: its bytes, and its stretches of positions without a file and with it."""

    nbytes: int
    here: tuple[int, int]
    beside_file: tuple[tuple[int, int], ...]


class EagerBytes:
    """Bytes of one program as eager runs it. O(total inputs and outputs of the nodes).

    What autograd saves and has in a file is there up to its last use in the forward, and around each use in the backward.
    Everything else that the forward makes may be held by variables: of the innermost submodule that has all of its uses, or of the
    step itself, until they return; and what a formula of the backward makes lives to the end of its expression. What a checkpointed call makes counts as if it were there all the time.
    """

    def __init__(self, program: CapturedProgram, sizes: Mapping[str, int]) -> None:
        graph = program.graph
        nbytes = [storage.nbytes.evaluate(sizes) for storage in graph.storages]
        persistent = set(graph.input_storages())
        self._change = [0] * (len(graph.nodes) + 1)
        self._saved: list[_Saved] = []
        last = len(graph.nodes) - 1
        kept = {graph.values[value].storage for value in graph.outputs}
        calls, formulas = _Calls(graph), _formulas(graph)
        for storage, positions in _uses(graph).items():
            if storage in persistent:
                continue
            forward = [at for at in positions if graph.nodes[at].source.phase == _FORWARD]
            later = positions[len(forward) :]
            end = min(positions[-1] + _TEMPORARY, formulas[positions[-1]].stop - 1)
            if not later:
                end = calls.end_around(forward)
            if storage in kept:
                end = last
            if forward and later and end < last and nbytes[storage] >= LEAST_BYTES:
                stretches = ((forward[0], forward[-1]), *_around(later, formulas, forward[-1] + 1))
                self._saved.append(_Saved(nbytes[storage], (positions[0], end), stretches))
            else:
                _add(self._change, positions[0], end, nbytes[storage])
        checkpointed = (
            sum(nbytes[s] for node in call for s in graph.created_storages(graph.nodes[node]))
            for call in program.checkpoints
        )
        self._always = sum(nbytes[storage] for storage in persistent) + max(checkpointed, default=0)

    def peak(self, in_file: int) -> int:
        """Most bytes of storages where the first that are saved go to a file, as long as that has fewer bytes than said."""
        change, done = list(self._change), 0
        for saved in self._saved:
            stretches: Iterator[tuple[int, int]] = iter(
                saved.beside_file if done < in_file else (saved.here,)
            )
            done += saved.nbytes
            for first, end in stretches:
                _add(change, first, end, saved.nbytes)
        most = live = 0
        for difference in change:
            live += difference
            most = max(most, live)
        return self._always + most

    def bytes_in_file(self, limit: int) -> int | None:
        """How many bytes of what is saved must go to a file for a peak within a limit; None where all are too few."""
        low, high = 0, sum(saved.nbytes for saved in self._saved)
        if self.peak(low) <= limit:
            return low
        if self.peak(high) > limit:
            return None
        for _ in range(_TRIES):
            middle = (low + high) // 2
            low, high = (low, middle) if self.peak(middle) <= limit else (middle, high)
        return high


class _Calls:
    """Stretches of the forward in which a submodule runs, for each path of one."""

    def __init__(self, graph: Graph) -> None:
        self._paths = [tuple(node.source.module.split(".")) for node in graph.nodes]
        self._ends: dict[tuple[tuple[str, ...], int], int] = {}
        open_since: dict[tuple[str, ...], list[int]] = {}
        for position, path in enumerate(self._paths):
            here = {path[:depth] for depth in range(_OUTERMOST + 1, len(path) + 1)}
            if graph.nodes[position].source.phase != _FORWARD:
                here = set()
            for prefix in [prefix for prefix in open_since if prefix not in here]:
                for start in open_since.pop(prefix):
                    self._ends[prefix, start] = position - 1
            for prefix in here:
                open_since.setdefault(prefix, []).append(position)
        self._last = len(graph.nodes) - 1

    def end_around(self, positions: list[int]) -> int:
        """The end of the innermost call around some positions of the forward; of the step where that is the outermost module."""
        common = self._paths[positions[0]]
        for position in positions[1:]:
            pairs = zip(common, self._paths[position], strict=False)
            common = tuple(mine for mine, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        return self._ends.get((common, positions[-1]), self._last)


def _add(change: list[int], first: int, end: int, nbytes: int) -> None:
    change[first] += nbytes
    change[end + 1] -= nbytes


def _uses(graph: Graph) -> dict[int, list[int]]:
    uses: dict[int, list[int]] = {}
    for position, node in enumerate(graph.nodes):
        for storage in _storages(graph, node):
            uses.setdefault(storage, []).append(position)
    return uses


def _storages(graph: Graph, node: Node) -> list[int]:
    values = (*node.inputs, *node.outputs)
    return list(dict.fromkeys(s for value in values if (s := graph.values[value].storage) is not None))


def _formulas(graph: Graph) -> list[range]:
    """By node, those that may belong to the same formula of the backward.

    All of a formula stand on the line, and in the module, of the operation whose gradient it is. What stands on no such line
    may belong to its neighbours.
    """
    places = [replace(node.source, phase="") for node in graph.nodes]
    known = {place for place, node in zip(places, graph.nodes, strict=True) if node.source.phase == _FORWARD}
    pairs = enumerate(itertools.pairwise(places), 1)
    borders = [0, *(at for at, pair in pairs if pair[0] != pair[1] and known.issuperset(pair)), len(places)]
    return [
        inside for start, end in itertools.pairwise(borders) for inside in [range(start, end)] * (end - start)
    ]


def _around(uses: list[int], formulas: list[range], least: int) -> list[tuple[int, int]]:
    """Stretches in which formulas have what they read; those that meet are one."""
    found: list[tuple[int, int]] = []
    for at in uses:
        first = max(at - _TOGETHER, formulas[at].start, least)
        end = min(at + _TEMPORARY, formulas[at].stop - 1)
        while found and first <= found[-1][1] + 1:
            first, _ = found.pop()
        found.append((first, end))
    return found
