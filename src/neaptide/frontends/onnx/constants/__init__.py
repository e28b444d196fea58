"""Numbers of a model that are known before it runs."""
