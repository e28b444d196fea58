"""What happens at each operation that a step dispatches while it is traced."""
