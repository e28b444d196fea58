"""Cards: their records, and what their allocator and libraries take."""
