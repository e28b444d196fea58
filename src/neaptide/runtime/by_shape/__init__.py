"""Several plans of one program, each made for another shape: a call runs the fastest that keeps the limit at its own."""
