"""Changed graphs judged in the sequence of the graph before, without compiling them."""
