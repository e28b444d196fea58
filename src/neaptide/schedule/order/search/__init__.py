"""Searches over orders: exact over downsets, beams, windows."""
