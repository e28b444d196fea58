"""Bytes, seconds and numbers of what runs, as they are measured."""
