"""Python objects as a step holds them: containers, places, batches and what libraries keep."""
