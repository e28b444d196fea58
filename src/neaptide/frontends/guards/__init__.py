"""Facts that a call must agree on with a capture."""
