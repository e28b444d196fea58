"""Blocks of the forward, equal ones solved once, and programs over the chain of them."""
