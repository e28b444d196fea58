"""What the C target can write: one file for each family of operators."""
