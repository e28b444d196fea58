"""Searches that decide whether an arena is large enough, and what makes their problems smaller."""
