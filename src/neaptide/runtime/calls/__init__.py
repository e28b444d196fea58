"""One call of a planned step: its inputs are read, its program runs, its results are written back."""
