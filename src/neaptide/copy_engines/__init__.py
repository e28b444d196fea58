"""Copies of storages to memory that is slower and larger, and back: what store, load and wait steps call."""
