"""Greedy eviction while a program runs (Kirisame et al., ICLR 2021): one policy, run on paper."""
