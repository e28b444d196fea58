"""Gradients whose formula PyTorch chooses by the numbers: refused where the bits differ in a trace."""

import pytest
import torch
from torch import nn

from neaptide.errors import CaptureError
from step_checks import assert_same_bits, planned


def stepping(loss_of):
    layer, value = nn.Linear(5, 5), nn.Parameter(torch.tensor(0.5))
    optimizer = torch.optim.SGD([*layer.parameters(), value], lr=0.01)

    def step(x):
        loss = loss_of(layer(x), value)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, torch.randn(20, 5)


REFUSED = {
    "prod": lambda h, v: h.prod(1).square().sum() + v,
    "prod of all": lambda h, v: (h[:2] + 1).prod() + v,
    "value of masked_fill": lambda h, v: h.masked_fill(h > 0, v).square().sum(),
}
SAME_BITS = {
    "masked_fill by a number": lambda h, v: h.masked_fill(h > 0, 0.5).square().sum() + v,
    "prod without gradient": lambda h, v: (h * h.detach().prod(1, keepdim=True)).sum() + v,
    "cumprod": lambda h, v: (1 + 0.1 * h).cumprod(1).square().mean() * v,
    "determinant": lambda h, v: torch.linalg.det(h[:5]) * v + torch.linalg.slogdet(h[5:10])[1],
    "extrema": lambda h, v: h.max() + h.min() + h.median() + h.nanmedian() + v * h.amax(1).sum(),
    "norms": lambda h, v: h.norm() + h.norm(1.5, dim=1).sum() + v * torch.dist(h, h + 1.3, 3),
    "scattered product": lambda h, v: (
        v * h.scatter_reduce(0, torch.arange(100).view(20, 5) % 7, h + 1, "prod").sum()
    ),
    "distances": lambda h, v: torch.cdist(h, h[:3] + 1).sum() * v,
    "scans": lambda h, v: (h.logcumsumexp(0) + h.cummax(0).values + h.cumsum(1)).sum() * v,
    "spread": lambda h, v: h.std(0).sum() + h.var() * v,
}
if torch.__version__ < "2.13":
    REFUSED["cumprod"] = SAME_BITS.pop("cumprod")


@pytest.mark.parametrize("name", REFUSED)
def test_a_gradient_that_would_differ_in_its_last_bits_is_refused_at_its_line(name):
    step, batch = stepping(REFUSED[name])
    with pytest.raises(CaptureError) as refused:
        planned(step, batch)
    error = refused.value
    assert "gradient of" in error.what
    assert "test_branching_gradients.py" in error.where
    assert error.next_step


@pytest.mark.parametrize("name", SAME_BITS)
def test_the_others_have_the_bits_of_eager(name):
    assert_same_bits(lambda: stepping(SAME_BITS[name]), steps=1)
