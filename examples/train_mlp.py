"""A plain PyTorch training script. The only thing neaptide asks for is `factory`.

python train_mlp.py                                  trains as it is
neaptide compare train_mlp.py:factory --peak 60%     plans the step and puts it beside eager
"""

import torch
from torch import nn


def factory():
    """A fresh step and a batch, the same for the same random seed."""
    torch.manual_seed(0)
    layers = [module for _ in range(4) for module in (nn.Linear(64, 64), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(batch):
        loss = nn.functional.cross_entropy(model(batch["x"]), batch["y"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, {"x": torch.randn(2048, 64), "y": torch.randint(10, (2048,))}


def main():
    """Train for a few steps."""
    step, batch = factory()
    for number in range(5):
        print(f"step {number}: loss {step(batch).item():.4f}")


if __name__ == "__main__":
    main()
