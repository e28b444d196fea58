"""Plans in stages: the space of the exact solvers."""
