"""Ordering again after an edit, with the proofs that survive it."""
