"""What runs along an axis in each operation of ATen: rows, a family a file, and the forms that they are written in."""
