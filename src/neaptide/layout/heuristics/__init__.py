"""Placement rules, ours and the peers', a climb and a portfolio."""
