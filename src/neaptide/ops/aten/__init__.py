"""What each operation of ATen means: rows, a family a file."""
