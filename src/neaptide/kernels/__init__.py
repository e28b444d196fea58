"""Kernels that neaptide builds itself: fused operations, compiled by Inductor."""
