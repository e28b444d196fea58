"""Whether a schedule is legal."""
