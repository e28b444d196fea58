"""Fusion: groups of operations become single ones, whose inner values take no bytes."""
