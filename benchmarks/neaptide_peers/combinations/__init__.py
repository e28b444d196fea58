"""Ways to put a search over variants and a search for a schedule together without looking at both at once."""
