"""Dims of a step's arguments that may vary, and what a trace assumed of them."""
