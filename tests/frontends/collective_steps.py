# ruff: noqa: T201
"""Steps that talk to other processes, run by `test_collectives` in a process of its own; prints what comes of each."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, distribute_tensor

from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step
from support.step_checks import planned

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)


def reducing(**options):
    def make():
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            loss = model(x).square().mean()
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad, **options)
                parameter.grad /= 2
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step

    return make


def refusal(step):
    try:
        capture_step(step, (torch.randn(2, 4),))
    except CaptureError as error:
        return str(error)
    return "captured"


x = torch.randn(2, 4)
for options in ({}, {"op": dist.ReduceOp.MAX}):
    eager, step = reducing(**options)(), planned(reducing(**options)(), x)
    print("equal:", [step(x) for _ in range(3)] == [eager(x) for _ in range(3)])
print("async:", refusal(reducing(async_op=True)()).replace("\n", " "))
mesh = init_device_mesh("cpu", (1,))
weight = nn.Parameter(distribute_tensor(torch.randn(4, 4), mesh, [Replicate()]))
print("wrapper:", refusal(lambda x: (x @ weight).sum()).replace("\n", " "))
print("untouched:", dist.all_reduce.__module__ == dist.distributed_c10d.__name__)
dist.destroy_process_group()
