"""Keep or recompute: models, blocks, the curve, and what no plan can beat."""
