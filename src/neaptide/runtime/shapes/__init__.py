"""Programs that decide by the shapes of a call what they run and what they evict."""
