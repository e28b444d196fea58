"""The programs of a step: how many there are, which calls they serve, and the host code beside them."""
