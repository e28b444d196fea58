"""What a step asks of the outside world while it is traced, and why it is refused."""
