"""Files and streams: read within bounds, and written whole or not at all."""
