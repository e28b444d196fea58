"""What is evicted at the points of a program, and how that is chosen."""
