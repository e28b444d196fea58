"""Choosing what waits on the host, and when it leaves and returns."""
