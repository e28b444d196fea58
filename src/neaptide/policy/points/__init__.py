"""Steps whose shapes vary, or that evict at run time: one program that decides at each call."""
