"""Choosing from a pool of repetitions by prices of bytes."""
