"""The losses of `torch.nn.functional` and those that people write themselves."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family, trained

FAMILY = Family("losses")


def small_net(inside=6, outside=4):
    return nn.Sequential(nn.Linear(inside, 10), nn.Tanh(), nn.Linear(10, outside))


@FAMILY.add("classification")
def every_form_of_cross_entropy():
    model = small_net(outside=5)
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0])

    def loss_of(x, labels, shares):
        logits = model(x)
        return (
            F.cross_entropy(logits, labels, weight=weight)
            + F.cross_entropy(logits, labels, label_smoothing=0.2, reduction="sum") / 64
            + F.cross_entropy(logits, shares)
            + F.cross_entropy(logits.view(8, 8, 5).transpose(1, 2), labels.view(8, 8), ignore_index=2)
            + F.nll_loss(logits.log_softmax(1), labels, weight=weight, ignore_index=0)
            + (F.cross_entropy(logits, labels, reduction="none") * labels.ne(1)).mean()
        )

    batch = (torch.randn(64, 6), torch.randint(0, 5, (64,)), torch.rand(64, 5).softmax(1))
    return trained(lambda batch: loss_of(*batch), model), batch


@FAMILY.add("binary")
def every_binary_loss():
    model = small_net(outside=3)

    def loss_of(x, y):
        logits = model(x)
        return (
            F.binary_cross_entropy_with_logits(logits, y, pos_weight=torch.tensor([1.0, 2.0, 3.0]))
            + F.binary_cross_entropy(logits.sigmoid(), y, weight=0.5 + y)
            + F.multilabel_soft_margin_loss(logits, y)
            + F.soft_margin_loss(logits, 2 * y - 1)
            + F.hinge_embedding_loss(logits, 2 * y - 1, margin=0.5)
            + F.relu(1 - logits * (2 * y - 1)).square().mean()
        )

    return trained(lambda batch: loss_of(*batch), model), (torch.randn(64, 6), torch.rand(64, 3).round())


@FAMILY.add("regression")
def every_regression_loss():
    model = small_net(outside=4)

    def loss_of(x, y):
        out = model(x)
        mean, spread = out.split(2, 1)
        return (
            F.mse_loss(mean, y)
            + F.l1_loss(mean, y)
            + F.smooth_l1_loss(mean, y, beta=0.5)
            + F.huber_loss(mean, y, delta=0.7)
            + F.gaussian_nll_loss(mean, y, F.softplus(spread) + 1e-3)
            + F.poisson_nll_loss(mean, y.abs().round(), full=True)
            + torch.log(torch.cosh(mean - y)).mean()
            + torch.maximum(0.9 * (y - mean), -0.1 * (y - mean)).mean()
            + 1
            - torch.corrcoef(torch.stack([mean[:, 0], y[:, 0]]))[0, 1]
        )

    return trained(lambda batch: loss_of(*batch), model), (torch.randn(64, 6), torch.randn(64, 2))


@FAMILY.add("distributions")
def divergences_between_distributions():
    student, teacher = small_net(), small_net().requires_grad_(False)

    def loss_of(x):
        with torch.no_grad():
            target = teacher(x)
        log_p, log_q = student(x).log_softmax(1), target.log_softmax(1)
        middle = torch.logaddexp(log_p, log_q) - math.log(2)
        js = F.kl_div(middle, log_p, log_target=True, reduction="batchmean") + F.kl_div(
            middle, log_q, log_target=True, reduction="batchmean"
        )
        wasserstein = (log_p.exp().cumsum(1) - log_q.exp().cumsum(1)).abs().sum(1).mean()
        return F.kl_div(log_p, log_q.exp(), reduction="batchmean") + js / 2 + wasserstein

    return trained(lambda batch: loss_of(*batch), student), (torch.randn(64, 6),)


@FAMILY.add("metric", "siamese")
def metric_losses_of_siamese_twins():
    model = small_net()

    def loss_of(anchor, positive, negative, same):
        a, p, n = model(anchor), model(positive), model(negative)
        distance = F.pairwise_distance(a, p)
        contrastive = (same * distance.square() + (1 - same) * F.relu(1 - distance).square()).mean()
        return (
            F.triplet_margin_loss(a, p, n, margin=0.8, swap=True)
            + F.triplet_margin_with_distance_loss(
                a, p, n, distance_function=lambda x, y: 1 - F.cosine_similarity(x, y)
            )
            + F.cosine_embedding_loss(a, n, 2 * same - 1, margin=0.1)
            + F.margin_ranking_loss(a[:, 0], n[:, 0], 2 * same - 1, margin=0.2)
            + contrastive
        )

    return trained(lambda batch: loss_of(*batch), model), (
        torch.randn(40, 6),
        torch.randn(40, 6),
        torch.randn(40, 6),
        torch.rand(40).round(),
    )


@FAMILY.add("self-supervised", "redundancy")
def barlow_twins_and_vicreg():
    model = nn.Sequential(small_net(), nn.BatchNorm1d(4, affine=False))

    def off_diagonal(square):
        size = len(square)
        return square.flatten()[:-1].view(size - 1, size + 1)[:, 1:].flatten()

    def loss_of(one, other):
        a, b = model(one), model(other)
        cross = a.T @ b / len(a)
        barlow = (torch.diagonal(cross) - 1).square().sum() + 5e-3 * off_diagonal(cross).square().sum()
        spread = sum(F.relu(1 - torch.sqrt(z.var(0) + 1e-4)).mean() for z in (a, b))
        covariance = sum(off_diagonal(torch.cov(z.T)).square().sum() / 4 for z in (a, b))
        return barlow + F.mse_loss(a, b) + spread + covariance

    return trained(lambda batch: loss_of(*batch), model), (torch.randn(40, 6), torch.randn(40, 6))


@FAMILY.add("survival", "cumulative")
def cox_partial_likelihood():
    model = small_net(outside=1)

    def loss_of(x, time, event):
        risk = model(x).squeeze(1)
        risk = risk[torch.argsort(time, descending=True)]
        happened = event[torch.argsort(time, descending=True)]
        return -((risk - risk.logcumsumexp(0)) * happened).sum() / happened.sum()

    return trained(lambda batch: loss_of(*batch), model), (
        torch.randn(40, 6),
        torch.rand(40),
        torch.rand(40).round(),
    )


@FAMILY.add("mining", "topk", "where")
def hard_example_mining():
    model = small_net(outside=2)

    def loss_of(x, y):
        each = F.cross_entropy(model(x), y, reduction="none")
        hardest = each.topk(12).values
        median = each.detach().median()
        return hardest.mean() + torch.where(each > median, each, each * 0.1).mean() + each.quantile(0.9)

    return trained(lambda batch: loss_of(*batch), model), (torch.randn(48, 6), torch.randint(0, 2, (48,)))


@FAMILY.add("ctc", "mean", "lengths as lists")
def ctc_of_scanned_lines():
    """Each line of a page is a row of columns; one is too short for its text, and its loss is infinite."""
    columns = nn.Conv1d(6, 7, 3, stride=2, padding=1)
    criterion = nn.CTCLoss(blank=6, zero_infinity=True)

    def loss_of(lines, text, widths, counts):
        scores = columns(lines).permute(2, 0, 1).log_softmax(-1)
        return criterion(scores, text, [(width + 1) // 2 for width in widths], counts)

    text = torch.randint(0, 6, (11,))
    return trained(lambda batch: loss_of(*batch), columns), (
        torch.randn(3, 6, 20),
        text,
        [20, 15, 4],
        [4, 3, 4],
    )
