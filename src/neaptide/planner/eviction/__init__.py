"""Greedy eviction while a program runs (Kirisame et al., ICLR 2021): one policy, simulated for a plan or run for real."""
