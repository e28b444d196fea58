"""Bodies of loops, planned as graphs of their own."""
