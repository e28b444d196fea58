"""Several memories, several arenas, and the allocator that grows its pools as it goes."""
