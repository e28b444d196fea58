"""Changed copies of graphs."""
