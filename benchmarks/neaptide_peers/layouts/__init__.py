"""Layouts of others: `find_layout(problem, limits, interrupt, *, capacity_bytes)` in each module."""
