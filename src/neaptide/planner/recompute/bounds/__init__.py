"""What recomputation must cost at least, and how low a peak can get."""
