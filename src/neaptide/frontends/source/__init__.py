"""The user's source: which code is the user's own, and its lines, branches and words."""
