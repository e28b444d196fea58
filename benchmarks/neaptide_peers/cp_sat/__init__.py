"""CP-SAT, the constraint solver of OR-tools, as a subprocess: models as plain data, answers as outcomes."""
