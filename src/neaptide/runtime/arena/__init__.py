"""Results in one block of memory: laid out once for a plan, or by shape (`*_by_shape`) for a program with points."""
