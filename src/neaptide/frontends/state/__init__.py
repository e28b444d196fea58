"""What a training step works on, found and named."""
