"""What a trace changes in the user's objects, noticed and put back."""
