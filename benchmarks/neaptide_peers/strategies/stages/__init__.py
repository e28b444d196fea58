"""Plans in stages: what the exact strategies solve."""
