"""Plans of one graph: its search, its record, and what is rewritten around it."""
