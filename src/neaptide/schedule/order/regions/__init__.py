"""Exact reductions: trees, series-parallel graphs, pumpkins and single-entry regions as dominant schedules."""
