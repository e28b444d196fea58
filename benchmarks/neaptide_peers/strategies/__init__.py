"""Strategies of others: `solve(problem, limits, interrupt=None) -> Outcome[PlannedSequence]` in each module.

The ways to evict are one module, `dtr`, whose `solve_with` takes the name of the heuristic first.
"""
