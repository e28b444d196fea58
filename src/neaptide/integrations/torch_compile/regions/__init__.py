"""Regions of a joint graph that run in parts, across its border too."""
