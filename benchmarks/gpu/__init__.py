"""What is checked on a card."""
