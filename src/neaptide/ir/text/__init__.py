"""The text form of graphs, written and read."""
