"""The same training as `train_mlp.py`, under a memory budget: one line more.

python train_mlp_planned.py
"""

from train_mlp import factory

import neaptide


def main():
    """Train for a few steps at 60 % of the step's own peak."""
    step, batch = factory()
    step = neaptide.compile_step(step, budget="60%")
    for number in range(5):
        print(f"step {number}: loss {step(batch).item():.4f}")
    predicted = step.plan.program("steady").predictions
    share = predicted.peak_with_workspace_bytes / predicted.baseline_peak_with_workspace_bytes
    print(f"peak: {share:.0%} of {predicted.baseline_peak_with_workspace_bytes / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
