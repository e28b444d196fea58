"""What operations really give, where PyTorch's fake kernels or its formulas in a trace say otherwise."""
