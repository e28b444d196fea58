"""A card that is not there: a step is captured with its operations, and no driver is asked for anything."""
