"""The smallest step, captured by a script that `test_observers` runs in processes in which something looks on."""

import torch

from neaptide.frontends.torch_step import capture_step

model = torch.nn.Linear(3, 2)


def step(x):
    loss = model(x).square().mean()
    loss.backward()
    return loss.detach()


def captured():
    return len(capture_step(step, (torch.ones(2, 3),)).steady.graph.nodes)


if __name__ == "__main__":
    print("operations:", captured())  # noqa: T201
