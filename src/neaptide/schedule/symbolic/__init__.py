"""Orders for graphs with symbolic sizes: one order for all shapes, or the ranges in which each of a few is best."""
