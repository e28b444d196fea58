"""What each operation of ATen means: rows, a family a file; `dialect`: what rules insert among them."""
