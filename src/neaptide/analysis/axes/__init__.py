"""What runs along an axis of a graph."""
