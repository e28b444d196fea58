"""Loops of a graph: bodies, how their parts lie, and orders within them."""
