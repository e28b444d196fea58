"""Both passes of a plan as programs."""
