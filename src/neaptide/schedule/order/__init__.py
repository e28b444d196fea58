"""Orders of a graph's operations for the lowest peak memory, with proof where there is one."""
