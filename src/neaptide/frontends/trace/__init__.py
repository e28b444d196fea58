"""One run of a step on fake tensors, and the graph that it gives."""
