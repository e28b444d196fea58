"""Variants planned side by side: what a worker process is told, the process, and those who speak with it."""
