"""All orders of a problem as a constraint model for CP-SAT.

Indexed by position: `done[v][t]` says whether op v has run once position t is over. It is monotone in t, exactly
t + 1 ops are done at t, and the bytes at t are linear in it, so the peak is a linear objective (OLLA, Steiner et al.,
2022, has the same variables in its integer program). Positions that no legal order gives an op are constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Final, TypeAlias

from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.search.lattice import mask_of
from neaptide.schedule.order.sharing import created_bytes
from neaptide.schedule.order.steps import to_steps
from neaptide_peers.cp_sat.builder import CpModelBuilder
from neaptide_peers.cp_sat.model import CpModel, Linear, value_of
from neaptide_peers.orders.windows import closures

_Sum: TypeAlias = list[tuple[int, Linear]]  # multiples of expressions

_NO: Final = Linear(constant=0)
_YES: Final = Linear(constant=1)


@dataclass(frozen=True, slots=True)
class OrderModel:
    """A constraint model of all orders of a problem.

    Attributes:
        model: its objective is the peak, in units.
        unit_bytes: greatest common divisor of all sizes.
        done: by op and position, an expression that is 1 if the op has run once that position is over.
    """

    model: CpModel
    unit_bytes: int
    done: tuple[tuple[Linear, ...], ...]

    def order(self, values: tuple[int, ...]) -> tuple[int, ...]:
        """The order that a solution stands for."""
        done_at = [sum(value_of(expression, values) for expression in column) for column in self.done]
        return tuple(sorted(range(len(self.done)), key=lambda op: -done_at[op]))


def order_model(problem: OrderProblem, *, lower_bytes: int = 0, hint: Sequence[int]) -> OrderModel:
    """Model all orders of a problem with at least one op. O(n^2) booleans, O(n x (accesses + edges)) terms.

    Args:
        problem: storages and ops, all of which are ordered.
        lower_bytes: a lower bound of the peak.
        hint: a legal order to start from; orders with a higher peak are left out.
    """
    writer = _Writer(problem, hint)
    peak = writer.write(lower_bytes, evaluate_order(problem, hint).peak_bytes)
    writer.builder.minimise(Linear.of(peak))
    return OrderModel(writer.builder.build(), writer.unit, tuple(map(tuple, writer.done)))


class _Writer:
    def __init__(self, problem: OrderProblem, hint: Sequence[int]) -> None:
        self.problem = problem
        self.count = problem.op_count
        self.builder = CpModelBuilder()
        self.place = {op: position for position, op in enumerate(hint)}
        self.before, self.after = closures(problem)
        steps = to_steps(problem)
        # Workspace less what is taken over in every order; and the other takeovers.
        self.extra = [rise - created_bytes(problem, op) for op, rise in enumerate(steps.rise)]
        self.takeovers = {
            op: [
                (() if c is None else tuple(x for x in steps.couplings[c].ops if x != op), pair)
                for c, pair in pairs
            ]
            for op, pairs in steps.takeovers.items()
        }
        sizes = [storage.nbytes for storage in problem.storages] + self.extra
        self.unit = gcd(*sizes, *(p.nbytes for pairs in self.takeovers.values() for _, p in pairs)) or 1
        self.done = [self._done(op) for op in range(self.count)]

    def write(self, lower_bytes: int, upper_bytes: int) -> int:
        """Write everything. Returns the variable of the peak."""
        peak = self.builder.integer(-(-lower_bytes // self.unit), upper_bytes // self.unit)
        self.builder.hint(peak, upper_bytes // self.unit)
        for t in range(self.count):
            self._require_order(t)
            self._require([*self._bytes_at(t), (-1, Linear.of(peak))], at_most=0)
        return peak

    def _boolean(self, *, hint: bool) -> Linear:
        variable = self.builder.boolean()
        self.builder.hint(variable, int(hint))
        return Linear.of(variable)

    def _done(self, op: int) -> list[Linear]:
        """Decided before the first and from the last position on that the op may have."""
        first = self.before[op].bit_count()
        last = self.count - 1 - self.after[op].bit_count()
        return [
            _NO if t < first else _YES if t >= last else self._boolean(hint=self.place[op] <= t)
            for t in range(self.count)
        ]

    def _require_order(self, t: int) -> None:
        self._require([(1, column[t]) for column in self.done], at_least=t + 1, at_most=t + 1)
        for op in range(self.count):
            now = (1, self.done[op][t])
            if t:
                self._require([now, (-1, self.done[op][t - 1])], at_least=0)
            for other in self.problem.predecessors[op]:
                self._require([now, (-1, self._all_done((other,), t - 1))], at_most=0)

    def _bytes_at(self, t: int) -> _Sum:
        """Bytes while the op at a position runs, in units."""
        terms: _Sum = []
        for storage, record in enumerate(self.problem.storages):
            size = record.nbytes // self.unit
            accessors = self.problem.accessors[storage]
            kept = record.resident or record.output
            if not size or not (accessors or kept):
                continue
            terms.append((size, _YES if self.problem.from_start[storage] else self.done[accessors[0]][t]))
            if not kept:
                mask = mask_of(accessors)
                last = [op for op in accessors if not self.after[op] & mask]
                terms.append((-size, self._all_done(last, t - 1)))
        for op in range(self.count):
            extra = self.extra[op] // self.unit
            terms += [(extra * sign, expression) for sign, expression in self._running(op, t)]
            if op in self.takeovers and self._may_run(op, t):
                terms += self._savings(op, t)
        return terms

    def _may_run(self, op: int, t: int) -> bool:
        return self.done[op][t] != _NO and (t == 0 or self.done[op][t - 1] != _YES)

    def _running(self, op: int, t: int) -> _Sum:
        """1 if the op runs at a position."""
        return [(1, self.done[op][t]), (-1, self.done[op][t - 1] if t else _NO)]

    def _all_done(self, ops: Sequence[int], t: int) -> Linear:
        """At most 1, and that only if all of some ops have run; the lowest peak makes it 1 wherever that helps."""
        open_ones = [self.done[op][t] if t >= 0 else _NO for op in ops]
        open_ones = [one for one in open_ones if one != _YES]
        if not open_ones:
            return _YES
        if _NO in open_ones:
            return _NO
        if len(open_ones) == 1:
            return open_ones[0]
        every = self._boolean(hint=all(self.place[op] <= t for op in ops))
        for one in open_ones:
            self._require([(1, every), (-1, one)], at_most=0)
        return every

    def _savings(self, op: int, t: int) -> _Sum:
        """What takeovers that hang on the order save at a position; each storage takes part once."""
        terms: _Sum = []
        rivals: dict[tuple[str, int], list[Linear]] = {}
        pairs = self.takeovers[op]
        for waiting, pair in pairs:
            is_last = self._all_done(waiting, t - 1)
            if is_last == _NO:
                continue
            happens = self.place[op] == t and all(self.place[other] < t for other in waiting)
            saved = self._boolean(hint=happens and len(pairs) == 1)
            self._require([(1, saved), *((-sign, e) for sign, e in self._running(op, t))], at_most=0)
            self._require([(1, saved), (-1, is_last)], at_most=0)
            terms.append((-(pair.nbytes // self.unit), saved))
            for role, storage in (("written", pair.written), ("read", pair.read)):
                rivals.setdefault((role, storage), []).append(saved)
        for group in rivals.values():
            if len(group) > 1:
                self._require([(1, saved) for saved in group], at_most=1)
        return terms

    def _require(self, terms: _Sum, *, at_least: int | None = None, at_most: int | None = None) -> None:
        """Hold a sum of multiples of expressions between limits; constants that do so by themselves need no words."""
        factors: dict[int, int] = {}
        constant = 0
        for factor, expression in terms:
            constant += factor * expression.constant
            for inner, variable in expression.terms:
                factors[variable] = factors.get(variable, 0) + factor * inner
        named = [(factor, variable) for variable, factor in factors.items() if factor]
        low, high = (None if limit is None else limit - constant for limit in (at_least, at_most))
        if named or (low is not None and low > 0) or (high is not None and high < 0):
            self.builder.require(named, at_least=low, at_most=high)
