"""Graphs of AOTAutograd, forward and backward in one, as graphs to plan."""
