"""Derivative rules, by family of operators."""
