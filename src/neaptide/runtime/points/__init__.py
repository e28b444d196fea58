"""Programs with points, at which a policy evicts: for one shape, for those that were seen, for all of a range."""
