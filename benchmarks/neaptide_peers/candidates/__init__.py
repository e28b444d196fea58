"""Changed graphs checked in the sequence of the graph before, without compiling them.

The outer search of neaptide plans what it prices, so only the peer `plan_then_transform` chooses by these checks.
"""
