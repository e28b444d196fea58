"""Orders of others: `find_order(problem, order, *, guard, lower_bytes)` in each module."""
