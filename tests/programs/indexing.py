"""Gathers, scatters, sorts, masks, views and strides; graphs and point clouds, which are made of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family, descend, trained

FAMILY = Family("indexing")


@FAMILY.add("graph", "index_add")
def graph_convolution_by_index_add():
    layers = nn.ModuleList([nn.Linear(5, 8), nn.Linear(8, 3)])

    def propagate(x, edges):
        source, target = edges
        degree = torch.zeros(len(x)).index_add(0, target, torch.ones(target.shape[0])).clamp(min=1)
        weight = (degree[source] * degree[target]).rsqrt().unsqueeze(1)
        return torch.zeros_like(x).index_add(0, target, weight * x[source])

    def loss_of(graph):
        x = F.relu(propagate(layers[0](graph["x"]), graph["edges"]))
        logits = propagate(layers[1](x), graph["edges"])
        return F.cross_entropy(logits[graph["labelled"]], graph["y"])

    return trained(loss_of, layers), {
        "x": torch.randn(20, 5),
        "edges": torch.randint(0, 20, (2, 60)),
        "labelled": torch.arange(0, 20, 3),
        "y": torch.randint(0, 3, (7,)),
    }


@FAMILY.add("graph", "attention", "scatter_reduce")
def graph_attention_by_scatter_softmax():
    project, score = nn.Linear(4, 6), nn.Linear(12, 1)

    def loss_of(batch):
        nodes, (source, target) = batch
        x = project(nodes)
        e = F.leaky_relu(score(torch.cat([x[source], x[target]], 1)), 0.2).squeeze(1)
        highest = torch.full((len(nodes),), float("-inf")).scatter_reduce(0, target, e.detach(), "amax")
        share = torch.exp(e - highest[target])
        share = share / torch.zeros(len(nodes)).scatter_add(0, target, share)[target]
        out = torch.zeros_like(x).scatter_add(0, target[:, None].expand(-1, 6), share[:, None] * x[source])
        return (out - x).square().mean()

    return trained(loss_of, project, score), (
        torch.randn(16, 4),
        (torch.randint(0, 16, (50,)), torch.arange(50) % 16),
    )


@FAMILY.add("segments", "include_self")
def segment_reductions():
    embed = nn.Linear(4, 6)

    def loss_of(batch):
        x, segment = batch
        h = embed(x)
        where = segment[:, None].expand_as(h)
        zeros = h.new_zeros(5, 6)
        found = torch.cat(
            [
                zeros.scatter_reduce(0, where, h, "sum"),
                zeros.scatter_reduce(0, where, h, "mean", include_self=False),
                zeros.scatter_reduce(0, where, h, "amax", include_self=False),
                zeros.index_reduce(0, segment, h, "amin"),
                torch.segment_reduce(h, "sum", lengths=torch.tensor([6, 6, 6, 6, 6]), axis=0),
            ],
            1,
        )
        return found.square().mean()

    return trained(loss_of, embed), (torch.randn(30, 4), torch.arange(30) // 6)


@FAMILY.add("index_put", "accumulate")
def writing_through_indices():
    layer = nn.Linear(6, 6)

    def loss_of(batch):
        x, rows, columns = batch
        h = layer(x)
        canvas = torch.zeros(10, 6)
        canvas[rows] = h[: len(rows)]
        canvas = canvas.index_put((columns, torch.arange(6)), h[0], accumulate=True)
        canvas[::2, 1:4] += 1.0
        canvas[0] = canvas[1] * 2
        canvas[..., -1] *= 0.5
        return canvas.square().mean()

    return trained(loss_of, layer), (
        torch.randn(8, 6),
        torch.tensor([7, 3, 5]),
        torch.tensor([0, 0, 1, 9, 1, 9]),
    )


@FAMILY.add("views", "inplace", "as_strided")
def aliases_of_every_kind():
    first, second = nn.Linear(8, 8), nn.Linear(4, 4)

    def loss_of(x):
        h = first(x)
        y = h.clone()
        left, right = y[:, :4], y.narrow(1, 4, 4)
        left.mul_(2)
        right.add_(left)
        y.t()[0].zero_()
        windows = y.as_strided((x.shape[0], 3, 4), (8, 2, 1))
        z = second(windows).transpose(1, 2).contiguous().view(x.shape[0], -1)
        z.narrow(1, 0, 2).clamp_(-1, 1)
        z.diagonal()[:4].neg_()
        return z.square().mean() + y.unfold(1, 4, 4).mean() + torch.movedim(windows, 0, 2).amax()

    return trained(loss_of, first, second), torch.randn(24, 8)


@FAMILY.add("masked", "where", "scatter")
def masks_and_fills():
    layer, mask_token = nn.Linear(6, 6), nn.Parameter(torch.zeros(6))

    def loss_of(batch):
        x, hidden = batch
        seen = torch.where(hidden.unsqueeze(-1), mask_token, x)
        out = layer(seen)
        out = out.masked_fill(out < -2, -2.0)
        wrong = (out - x).square().mean(-1)
        out2 = torch.zeros_like(out).masked_scatter(hidden.unsqueeze(-1).expand_as(out), out)
        return (wrong * hidden).sum() / hidden.sum() + out2.abs().mean()

    return trained(loss_of, layer, mask_token), (torch.randn(4, 12, 6), torch.rand(4, 12) > 0.5)


@FAMILY.add("sort", "cumulative", "search")
def sorts_scans_and_searches():
    layer = nn.Linear(6, 8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step(x):
        h = layer(x)
        ranked, order = h.sort(dim=1, stable=True)
        steps = ranked.diff(dim=1)
        highest = h.cummax(0).values
        product = (1 + 0.1 * h).cumprod(1)
        bins = torch.bucketize(h.detach(), torch.linspace(-1, 1, 5))
        place = torch.searchsorted(ranked.detach(), h.detach()[:, :2].contiguous())
        picked = h.take_along_dim(order, 1) + h.roll(1, 0) + h.flip(1)
        third = h.kthvalue(3, dim=1).values + h.mode(1).values * 0.0
        return descend(
            optimizer,
            steps.square().mean()
            + highest.mean()
            + product.mean()
            + (picked * bins).mean()
            + third.mean()
            + (place * h[:, :2]).mean(),
            clears_first=True,
        )

    return step, torch.randn(24, 6)
