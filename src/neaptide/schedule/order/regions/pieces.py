"""Chains of macro ops written back as an ordering problem.

A macro op only has a rise and a delta; a problem has storages. The bytes of a chain are laid out as a stack: a macro
op that ends higher pushes a piece, one that ends lower pops, cutting pieces where it must. What enters the chain to
die there lies at the bottom, what is left at its end is cut into what leaves it. So every level is exact, and what
outlives a chain is still freed by the ops that really read it.
"""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.order.regions.contraction import ChainGraph, Item
from neaptide.schedule.order.regions.segments import flatten
from neaptide.schedule.order.sharing import takeovers
from neaptide.schedule.order.steps import Steps, born_at


@dataclass(slots=True)
class _Piece:
    """Bytes with one birth and one set of ops of which the last frees them."""

    storage: int
    nbytes: int
    birth: int | None  # new op; None: there from the start
    deaths: tuple[int, ...]  # new ops; empty: never freed


def rebuild(
    problem: OrderProblem, steps: Steps, graph: ChainGraph
) -> tuple[OrderProblem, list[tuple[int, ...]]]:
    """The contracted problem, and by op of it the ops of the original that it runs, in order. O(size)."""
    return _Rebuild(problem, steps, graph).run()


class _Rebuild:
    def __init__(self, problem: OrderProblem, steps: Steps, graph: ChainGraph) -> None:
        self.problem = problem
        self.graph = graph
        self.runs: list[list[int]] = []  # new ops that follow one another without couplings, or one with
        self.items: list[Item] = []
        self.contents: list[tuple[int, ...]] = []
        self.after: list[list[int]] = []
        self._number_items()
        self.new_op = [0] * problem.op_count
        for index, ops in enumerate(self.contents):
            for op in ops:
                self.new_op[op] = index
        self.run_of = [0] * len(self.items)
        for number, run in enumerate(self.runs):
            for index in run:
                self.run_of[index] = number
        self.pinned = {index for index, coupling in enumerate(steps.couplings) if coupling.storage is None}
        self.pieces: list[list[_Piece]] = []  # by storage
        self._place_pieces(steps)

    def _number_items(self) -> None:
        """New ops in a legal order, chain by chain."""
        last: dict[int, int] = {}
        for chain in self.graph.topological():
            previous = sorted(last[b] for b in self.graph.predecessors[chain])
            open_run: list[int] | None = None
            for item in self.graph.items[chain]:
                index = len(self.items)
                self.items.append(item)
                self.contents.append(flatten(item.segment.ops))
                self.after.append(previous)
                previous = [index]
                if item.couplings or open_run is None:
                    open_run = []
                    self.runs.append(open_run)
                open_run.append(index)
                if item.couplings:
                    open_run = None
            last[chain] = len(self.items) - 1

    def _place_pieces(self, steps: Steps) -> None:
        tied = [set(item.couplings) for item in self.items]
        coupled: dict[int, tuple[int, ...]] = {}
        number: dict[int, int] = {}
        for index, coupling in enumerate(steps.couplings):
            if coupling.storage is not None:
                coupled[coupling.storage], number[coupling.storage] = coupling.ops, index
        for index, storage in enumerate(self.problem.storages):
            birth = born_at(self.problem, index)
            deaths: tuple[int, ...] = ()
            freed_by = steps.freed_by[index]
            if freed_by is not None:
                deaths = (self.new_op[freed_by],)
            elif index in coupled:
                candidates = sorted({self.new_op[op] for op in coupled[index]})
                deaths = tuple(op for op in candidates if number[index] in tied[op])
                if (
                    not deaths
                ):  # dissolved: all candidates are in one run, and its order says which is the last
                    deaths = (candidates[-1],)
            there = birth is not None or self.problem.from_start[index]
            counted = bool(self.problem.accessors[index]) or storage.resident or storage.output
            pieces = []
            if there and counted:
                pieces.append(
                    _Piece(index, storage.nbytes, None if birth is None else self.new_op[birth], deaths)
                )
            self.pieces.append(pieces)

    def run(self) -> tuple[OrderProblem, list[tuple[int, ...]]]:
        entering: list[list[int]] = [
            [] for _ in self.runs
        ]  # by run, storages that die there and nowhere else
        leaving: list[list[int]] = [[] for _ in self.runs]
        inside: list[list[int]] = [[] for _ in self.runs]
        for storage, pieces in enumerate(self.pieces):
            for piece in pieces:
                birth = None if piece.birth is None else self.run_of[piece.birth]
                death = self.run_of[piece.deaths[0]] if len(piece.deaths) == 1 else None
                if birth is not None:
                    (inside if birth == death else leaving)[birth].append(storage)
                if death is not None and birth != death:
                    entering[death].append(storage)
        workspace = [0] * len(self.items)
        pairs: list[tuple[tuple[int, int], ...]] = [()] * len(self.items)
        for number, run in enumerate(self.runs):
            if self._is_plain(run):
                for index in run:
                    op = self.contents[index][0]
                    workspace[index] = self.problem.ops[op].workspace
                    pairs[index] = tuple((pair.written, pair.read) for pair in takeovers(self.problem, op))
                continue
            for storage in inside[number]:
                self.pieces[storage] = []
            self._stack(run, entering[number], leaving[number])
            for index in run:
                rise, delta, _ = self.items[index].segment
                workspace[index] = rise - max(0, delta)
        return self._problem(workspace, pairs), self.contents

    def _is_plain(self, run: list[int]) -> bool:
        """Whether a run is of original ops whose storages can stay as they are.

        An `in_place` stays only where its saving depends on the order (such ops are pinned); elsewhere it is part of
        the rise.
        """
        if len(run) == 1 and self.pinned.intersection(self.items[run[0]].couplings):
            return True
        return all(
            len(self.contents[index]) == 1 and not self.problem.ops[self.contents[index][0]].in_place
            for index in run
        )

    def _stack(self, run: list[int], entering: list[int], leaving: list[int]) -> None:
        """Lay out the levels of a run as pieces; see the module's text."""
        inside = set(run)
        stack: list[_Piece] = []
        for storage in entering:
            dying = [p for p in self.pieces[storage] if len(p.deaths) == 1 and p.deaths[0] in inside]
            if dying:
                stack += dying
                self.pieces[storage] = [p for p in self.pieces[storage] if p not in dying]
        exits: list[_Piece] = []
        for storage in leaving:
            exits += self.pieces[storage]
            self.pieces[storage] = []
        for index in run:
            delta = self.items[index].segment.delta
            if delta > 0:
                stack.append(_Piece(-1, delta, index, ()))
            while delta < 0:
                top = stack.pop()
                taken = min(top.nbytes, -delta)
                delta += taken
                if taken < top.nbytes:
                    stack.append(_Piece(top.storage, top.nbytes - taken, top.birth, ()))
                self._add(top, taken, (index,))
        for leaver in exits:
            wanted = leaver.nbytes
            while wanted:
                top = stack.pop()
                taken = min(top.nbytes, wanted)
                wanted -= taken
                if taken < top.nbytes:
                    stack.append(_Piece(top.storage, top.nbytes - taken, top.birth, ()))
                self.pieces[leaver.storage].append(_Piece(leaver.storage, taken, top.birth, leaver.deaths))
        assert not any(piece.nbytes for piece in stack), "the levels of a run do not add up"

    def _add(self, piece: _Piece, nbytes: int, deaths: tuple[int, ...]) -> None:
        owner = piece.storage if piece.storage >= 0 else len(self.pieces)
        if owner == len(self.pieces):
            self.pieces.append([])
        self.pieces[owner].append(_Piece(owner, nbytes, piece.birth, deaths))

    def _problem(self, workspace: list[int], pairs: list[tuple[tuple[int, int], ...]]) -> OrderProblem:
        storages: list[OrderStorage] = []
        reads: list[list[int]] = [[] for _ in self.items]
        writes: list[list[int]] = [[] for _ in self.items]
        first: dict[int, int] = {}
        for owner, pieces in enumerate(self.pieces):
            original = self.problem.storages[owner] if owner < len(self.problem.storages) else None
            for part, piece in enumerate(pieces):
                base = original.name if original else f"macro:{owner - len(self.problem.storages)}"
                name = base if len(pieces) == 1 else f"{base}.{part}"
                resident = original is not None and original.resident
                first.setdefault(owner, len(storages))
                if piece.birth is not None and not resident:
                    writes[piece.birth].append(len(storages))
                if not resident:
                    for op in piece.deaths:
                        if op != piece.birth:
                            reads[op].append(len(storages))
                lasting = not piece.deaths
                # What is there from the start to the end is the same as resident, whatever it was called.
                forever = resident or (lasting and piece.birth is None)
                storages.append(OrderStorage(name, piece.nbytes, forever, lasting and not forever))
        ops = []
        for index, contents in enumerate(self.contents):
            record = self.problem.ops[contents[0]]
            name = record.name if len(contents) == 1 else f"{record.name}+{len(contents) - 1}"
            ops.append(
                OrderOp(
                    name,
                    tuple(reads[index]),
                    tuple(writes[index]),
                    workspace[index],
                    tuple((first[w], first[r]) for w, r in pairs[index]),
                    tuple(self.after[index]),
                )
            )
        return OrderProblem(tuple(storages), tuple(ops), self.problem.name)
