"""Shapes of all values of a model."""
