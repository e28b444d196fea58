"""A planned step as the user's function: which program a call runs, guarded and verified."""
