"""The whole front of time against memory, and one point of it."""
