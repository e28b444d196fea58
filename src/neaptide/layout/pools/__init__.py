"""Several memories, each with one arena or several."""
