"""Programs that Inductor compiles: ours is what is saved and recomputed and in which order; its kernels are fused."""
