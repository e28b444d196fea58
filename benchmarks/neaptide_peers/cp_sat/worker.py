"""The process that holds CP-SAT: reads models from stdin, a line each, and writes what it finds to stdout.

The only module that imports ortools: its wheels and those of HiGHS cannot be loaded by one process. Started as
`python -m neaptide_peers.cp_sat.worker`; ends when stdin does, even in the middle of a search.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from neaptide_peers.cp_sat.messages import REQUEST, Bound, Ended, Found, Ready, Report, SolveRequest, line_of
from neaptide_peers.cp_sat.model import CpModel, Interval, Linear, most_size, negated

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


class _Translation:
    """A model in the solver's own objects."""

    def __init__(self, cp: Any, source: CpModel) -> None:
        self._cp = cp
        self._source = source
        model: cp_model.CpModel = cp.CpModel()
        self.model = model
        self.variables = [
            model.new_int_var_from_domain(cp.Domain.from_intervals([list(span) for span in v.ranges]), "")
            for v in source.variables
        ]
        for constraint in source.linear:
            low = cp.INT_MIN if constraint.lower is None else constraint.lower
            high = cp.INT_MAX if constraint.upper is None else constraint.upper
            linear = model.add_linear_constraint(self._expression(constraint.expression), low, high)
            if constraint.when:
                linear.only_enforce_if([self._literal(literal) for literal in constraint.when])
        for maximum in source.maxima:
            model.add_max_equality(
                self.variables[maximum.target], [self._expression(expression) for expression in maximum.of]
            )
        intervals = [self._interval(interval) for interval in source.intervals]
        for group in source.no_overlap:
            model.add_no_overlap([intervals[i] for i in group])
        for cumulative in source.cumulative:
            model.add_cumulative(
                [intervals[i] for i in cumulative.intervals],
                list(cumulative.demands),
                self._expression(cumulative.capacity),
            )
        for rectangles in source.no_overlap_2d:
            model.add_no_overlap_2d(
                [intervals[i] for i in rectangles.x], [intervals[i] for i in rectangles.y]
            )
        if source.objective is not None:
            model.minimize(self._expression(source.objective))
        for variable, value in source.hints:
            model.add_hint(self.variables[variable], value)

    def _interval(self, interval: Interval) -> Any:
        model, start = self.model, self._expression(interval.start)
        when = None if interval.when is None else self._literal(interval.when)
        if interval.end is None:
            if when is None:
                return model.new_fixed_size_interval_var(start, interval.size, "")
            return model.new_optional_fixed_size_interval_var(start, interval.size, when, "")
        size = model.new_int_var(interval.size, most_size(interval, self._source.variables), "")
        end = self._expression(interval.end)
        if when is None:
            return model.new_interval_var(start, size, end, "")
        return model.new_optional_interval_var(start, size, end, when, "")

    def _expression(self, linear: Linear) -> Any:
        if not linear.terms:
            return self.model.new_constant(linear.constant)
        factors = [factor for factor, _ in linear.terms]
        variables = [self.variables[variable] for _, variable in linear.terms]
        return self._cp.LinearExpr.weighted_sum(variables, factors) + linear.constant

    def _literal(self, literal: int) -> Any:
        return self.variables[literal] if literal >= 0 else self.variables[negated(literal)].negated()


class _Output:
    """Writes lines; the solver's threads call it too."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        self._lock = threading.Lock()

    def write(self, report: Report) -> None:
        with self._lock:
            self._file.write(line_of(report))


def _solve(cp: Any, request: SolveRequest, output: _Output) -> Ended:
    translation = _Translation(cp, request.model)
    detail = translation.model.validate()
    if detail:
        return Ended("MODEL_INVALID", None, 0.0, detail)
    solver = cp.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = request.workers
    parameters.random_seed = request.seed % (1 << 31)
    parameters.catch_sigint_signal = False
    if request.time_s is not None:
        parameters.max_time_in_seconds = request.time_s
    if request.deterministic_s is not None:
        parameters.max_deterministic_time = request.deterministic_s
        # Several threads give the same answer every time only if they take turns.
        parameters.interleave_search = request.workers > 1

    last: tuple[int, ...] | None = None

    class Callback(cp.CpSolverSolutionCallback):  # type: ignore[misc]
        def on_solution_callback(self) -> None:
            nonlocal last
            last = tuple(self.value(variable) for variable in translation.variables)
            output.write(Found(last))

    has_objective = request.model.objective is not None
    if has_objective:
        solver.best_bound_callback = lambda bound: output.write(Bound(bound))
    status = solver.solve(translation.model, Callback())
    name = solver.status_name(status)
    if name in {"OPTIMAL", "FEASIBLE"}:
        final = tuple(solver.value(variable) for variable in translation.variables)
        if final != last:
            output.write(Found(final))
    bound = solver.best_objective_bound if has_objective and name != "INFEASIBLE" else None
    return Ended(name, bound, solver.response_proto.deterministic_time, "")


def _read_lines(lines: queue.SimpleQueue[bytes]) -> None:
    """Pass lines on; without anybody to write any more, the process is of no use."""
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)


def main() -> None:
    """Serve requests until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this decides when it stops
    # What the solver's C++ prints must not come between the lines.
    output = _Output(os.dup(1))
    os.dup2(2, 1)
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()

    import ortools
    from ortools.sat.python import cp_model

    output.write(Ready(str(ortools.__version__)))
    while True:
        output.write(_solve(cp_model, REQUEST.decode(lines.get()), output))


if __name__ == "__main__":
    main()
