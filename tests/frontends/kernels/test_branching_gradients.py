"""Gradients whose formula PyTorch chooses by the numbers: refused where the bits differ in a trace."""

import pytest
import torch
from torch import nn

from frontends.kernels.kernel_support import has_mixed_squares
from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step
from programs.program import descending
from support.step_checks import assert_same_bits, planned
from support.together import together


def stepping(loss_of):
    layer, value = nn.Linear(5, 5), nn.Parameter(torch.tensor(0.5))
    optimizer = torch.optim.SGD([*layer.parameters(), value], lr=0.01)

    return descending(optimizer, lambda x: loss_of(layer(x), value)), torch.randn(20, 5)


def twice(loss, h):
    """A penalty on the gradient of a loss, and so a gradient of it."""
    (gradient,) = torch.autograd.grad(loss, h, create_graph=True)
    return loss + gradient.square().mean()


def by_logarithm(matrix):
    sign, logarithm = torch.linalg.slogdet(matrix)
    return sign * logarithm.exp()


def matrices(a):
    linalg, square = torch.linalg, a @ a.mT
    made = (
        *(
            linalg.inv(a),
            linalg.solve(a, a.mT),
            linalg.cholesky(square),
            linalg.eigvalsh(square),
            linalg.matrix_exp(a / 9),
        ),
        *(
            linalg.qr(a).R,
            linalg.svdvals(a),
            linalg.pinv(a),
            linalg.lu_factor(a).LU,
            linalg.slogdet(a)[1],
            a.logdet(),
        ),
        *(
            linalg.vector_norm(a, 3),
            linalg.matrix_norm(a),
            linalg.matrix_norm(a, "nuc"),
            linalg.matrix_power(a, 3),
        ),
        linalg.solve_triangular(a.tril(), a, upper=False),
    )
    return sum(tensor.square().mean() for tensor in made)


def losses(h, target):
    functions = nn.functional
    return (
        *(
            functions.mse_loss(h, target),
            functions.huber_loss(h, target),
            functions.smooth_l1_loss(h, target),
        ),
        *(bce(h.sigmoid(), target), bce_with_logits(h, target), functions.soft_margin_loss(h, target.sign())),
        *(
            functions.kl_div(h.log_softmax(1), target, reduction="batchmean"),
            functions.poisson_nll_loss(h, target),
        ),
        functions.cross_entropy(h, target.softmax(1)),
    )


ONES = torch.ones(20, 5)
bce, bce_with_logits = nn.functional.binary_cross_entropy, nn.functional.binary_cross_entropy_with_logits
REFUSED = {
    "prod": lambda h, v: h.prod(1).square().sum() + v,
    "prod of all": lambda h, v: (h[:2] + 1).prod() + v,
    "value of masked_fill": lambda h, v: h.masked_fill(h > 0, v).square().sum(),
    "determinants, differentiated twice": lambda h, v: twice(torch.linalg.det(h.view(4, 5, 5)).sum() * v, h),
    "cumprod, differentiated twice": lambda h, v: twice((1 + 0.1 * h).cumprod(1).sum() * v, h),
    "target of mixed dtype": lambda h, v: bce_with_logits(h.bfloat16(), (h * v).sigmoid()).float(),
    "target beside a weight of another dtype": lambda h, v: bce(
        h.sigmoid().half(), (h * v).sigmoid().half(), torch.full((5,), 0.7)
    ).float(),
}
SAME_BITS = {
    "logits in bfloat16": lambda h, v: bce_with_logits(h.bfloat16(), ONES * 0.3).float() * v,
    "logits in bfloat16, weights": lambda h, v: (
        bce_with_logits(h.bfloat16(), ONES * 0.3, ONES[0] * 0.7, reduction="sum").float() * v
    ),
    "logits in half, positives": lambda h, v: (
        bce_with_logits(h.half(), ONES.half(), pos_weight=ONES[0] * 3, reduction="none").float().sum() * v
    ),
    "target of the same dtype": lambda h, v: bce_with_logits(h, (h * v).sigmoid()),
    "mixed losses": lambda h, v: (
        (
            nn.functional.smooth_l1_loss(h.bfloat16(), ONES)
            + nn.functional.soft_margin_loss(h.bfloat16(), ONES)
        ).float()
        * v
    ),
    "mixed squares": lambda h, v: nn.functional.mse_loss(h.half(), ONES, reduction="sum").float() * v,
    "other way to a determinant": lambda h, v: twice(by_logarithm(h[:5]) * v, h),
    "matrices, twice": lambda h, v: twice(matrices(h[:5] + 4 * torch.eye(5)) * v, h),
    "losses, twice": lambda h, v: twice(sum(losses(h, ONES * 0.3)) * v, h),
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
if not has_mixed_squares():
    del SAME_BITS["mixed squares"]


@together(
    "name",
    REFUSED,
    quick=("prod", "value of masked_fill", "cumprod, differentiated twice", "target of mixed dtype"),
)
def test_a_gradient_that_would_differ_in_its_last_bits_is_refused_at_its_line(name):
    step, batch = stepping(REFUSED[name])
    with pytest.raises(CaptureError) as refused:
        planned(step, batch)
    error = refused.value
    assert "gradient of" in error.what
    assert "test_branching_gradients.py" in error.where
    assert error.next_step


def test_the_others_have_the_bits_of_eager():
    names = (
        "logits in half, positives",
        "other way to a determinant",
        "scattered product",
        "extrema",
        "norms",
    )
    assert_same_bits(lambda: stepping(lambda h, v: sum(SAME_BITS[name](h, v) for name in names)), steps=1)


@pytest.mark.slow
@together("name", SAME_BITS)
def test_each_of_them_has_the_bits_of_eager(name):
    assert_same_bits(lambda: stepping(SAME_BITS[name]), steps=1)


def test_a_gradient_that_is_made_by_the_formula_of_eager_is_made_once():
    step, batch = stepping(lambda h, v: bce_with_logits(h.bfloat16(), ONES * 0.3).float() * v)
    operations = [node.op for node in capture_step(step, (batch,)).steady.graph.nodes]
    assert operations.count("aten.sigmoid.default") == 1
    assert operations.count("aten.sub_.Tensor") == 1
    assert "aten.sub.Tensor" not in operations
