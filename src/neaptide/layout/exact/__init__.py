"""Searches that decide whether an arena is large enough."""
