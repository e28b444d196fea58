"""Calls that run on this machine, alone or in their place, and what they take."""
