"""The outer search: variants of a graph, each planned by the inner search."""
