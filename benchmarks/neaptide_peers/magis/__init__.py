"""MAGIS (Chen et al., ASPLOS 2024): its conventions of cost, and its search."""
