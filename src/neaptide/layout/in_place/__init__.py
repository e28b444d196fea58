"""Results that lie on an operand: which may, which do, and what that saves."""
