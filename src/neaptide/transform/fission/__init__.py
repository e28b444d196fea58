"""Fission: a region of a graph run in parts along an axis."""
