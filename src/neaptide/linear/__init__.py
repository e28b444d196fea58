"""Linear programs: the one room that asks SciPy for them, with one set of tolerances."""
