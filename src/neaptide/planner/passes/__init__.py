"""Which passes change a graph, and in which order: a search over sequences of passes, measured by the best order of each graph.

`search` has the loop and `archive` what it has seen; `learned` picks by a model that `benchmarks/train_passes.py` fits;
`graph_space` makes a graph and its rules what is searched; `history` says what each step did and what it enabled.
"""
