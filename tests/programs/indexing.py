"""Gathers, scatters, sorts, masks, views and strides; graphs and point clouds, which are made of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family, descend, descending

FAMILY = Family("indexing")


@FAMILY.add("graph", "index_add")
def graph_convolution_by_index_add():
    layers = nn.ModuleList([nn.Linear(5, 8), nn.Linear(8, 3)])
    optimizer = torch.optim.Adam(layers.parameters())

    def propagate(x, edges):
        source, target = edges
        degree = torch.zeros(len(x)).index_add(0, target, torch.ones(target.shape[0])).clamp(min=1)
        weight = (degree[source] * degree[target]).rsqrt().unsqueeze(1)
        return torch.zeros_like(x).index_add(0, target, weight * x[source])

    def loss_of(graph):
        x = F.relu(propagate(layers[0](graph["x"]), graph["edges"]))
        logits = propagate(layers[1](x), graph["edges"])
        return F.cross_entropy(logits[graph["labelled"]], graph["y"])

    return descending(optimizer, loss_of, clears_first=True), {
        "x": torch.randn(20, 5),
        "edges": torch.randint(0, 20, (2, 60)),
        "labelled": torch.arange(0, 20, 3),
        "y": torch.randint(0, 3, (7,)),
    }


@FAMILY.add("graph", "attention", "scatter_reduce")
def graph_attention_by_scatter_softmax():
    project, score = nn.Linear(4, 6), nn.Linear(12, 1)
    optimizer = torch.optim.SGD([*project.parameters(), *score.parameters()], lr=0.1)

    def loss_of(batch):
        nodes, (source, target) = batch
        x = project(nodes)
        e = F.leaky_relu(score(torch.cat([x[source], x[target]], 1)), 0.2).squeeze(1)
        highest = torch.full((len(nodes),), float("-inf")).scatter_reduce(0, target, e.detach(), "amax")
        share = torch.exp(e - highest[target])
        share = share / torch.zeros(len(nodes)).scatter_add(0, target, share)[target]
        out = torch.zeros_like(x).scatter_add(0, target[:, None].expand(-1, 6), share[:, None] * x[source])
        return (out - x).square().mean()

    return descending(optimizer, loss_of, clears_first=True), (
        torch.randn(16, 4),
        (torch.randint(0, 16, (50,)), torch.arange(50) % 16),
    )


@FAMILY.add("segments", "include_self")
def segment_reductions():
    embed = nn.Linear(4, 6)
    optimizer = torch.optim.Adam(embed.parameters())

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

    return descending(optimizer, loss_of, clears_first=True), (torch.randn(30, 4), torch.arange(30) // 6)


@FAMILY.add("points", "max")
def point_net():
    local, head = (
        nn.Sequential(nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 12, 1)),
        nn.Linear(12, 4),
    )
    align = nn.Linear(3, 9)
    optimizer = torch.optim.Adam([*local.parameters(), *head.parameters(), *align.parameters()])

    def loss_of(batch):
        points, labels = batch
        turn = align(points.amax(1)).view(-1, 3, 3) + torch.eye(3)
        pooled = local((points @ turn).mT).max(dim=2).values
        straight = torch.linalg.matrix_norm(turn @ turn.mT - torch.eye(3)).mean()
        return F.cross_entropy(head(pooled), labels) + 1e-3 * straight

    return descending(optimizer, loss_of, clears_first=True), (
        torch.randn(6, 24, 3),
        torch.randint(0, 4, (6,)),
    )


@FAMILY.add("points", "neighbours", "topk")
def edge_convolution_on_nearest_neighbours():
    edge = nn.Sequential(nn.Linear(6, 10), nn.LeakyReLU(0.2), nn.Linear(10, 5))
    optimizer = torch.optim.AdamW(edge.parameters())

    def loss_of(points):
        near = torch.cdist(points, points).topk(5, largest=False).indices[..., 1:]
        rows = torch.arange(len(points))[:, None, None]
        neighbours = points[rows, near]
        middle = points.unsqueeze(2).expand_as(neighbours)
        out = edge(torch.cat([middle, neighbours - middle], -1)).amax(2)
        return out.logsumexp(1).square().mean()

    return descending(optimizer, loss_of, clears_first=True), torch.randn(4, 16, 3)


@FAMILY.add("index_put", "accumulate")
def writing_through_indices():
    layer = nn.Linear(6, 6)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

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

    return descending(optimizer, loss_of, clears_first=True), (
        torch.randn(8, 6),
        torch.tensor([7, 3, 5]),
        torch.tensor([0, 0, 1, 9, 1, 9]),
    )


@FAMILY.add("views", "inplace", "as_strided")
def aliases_of_every_kind():
    first, second = nn.Linear(8, 8), nn.Linear(4, 4)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.05)

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

    return descending(optimizer, loss_of, clears_first=True), torch.randn(24, 8)


@FAMILY.add("masked", "where", "scatter")
def masks_and_fills():
    layer, mask_token = nn.Linear(6, 6), nn.Parameter(torch.zeros(6))
    optimizer = torch.optim.Adam([*layer.parameters(), mask_token])

    def loss_of(batch):
        x, hidden = batch
        seen = torch.where(hidden.unsqueeze(-1), mask_token, x)
        out = layer(seen)
        out = out.masked_fill(out < -2, -2.0)
        wrong = (out - x).square().mean(-1)
        out2 = torch.zeros_like(out).masked_scatter(hidden.unsqueeze(-1).expand_as(out), out)
        return (wrong * hidden).sum() / hidden.sum() + out2.abs().mean()

    return descending(optimizer, loss_of, clears_first=True), (torch.randn(4, 12, 6), torch.rand(4, 12) > 0.5)


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


@FAMILY.add("quantiser", "straight-through", "argmin")
def vector_quantised_autoencoder():
    encode, decode = nn.Linear(8, 4), nn.Linear(4, 8)
    book = nn.Embedding(10, 4)
    optimizer = torch.optim.Adam([*encode.parameters(), *decode.parameters(), *book.parameters()])

    def step(x):
        z = encode(x)
        nearest = torch.cdist(z, book.weight).argmin(1)
        code = book(nearest)
        straight = z + (code - z).detach()
        loss = (
            F.mse_loss(decode(straight), x)
            + F.mse_loss(code, z.detach())
            + 0.25 * F.mse_loss(z, code.detach())
        )
        return {
            "loss": descend(optimizer, loss, clears_first=True),
            "used": torch.bincount(nearest, minlength=10),
        }

    return step, torch.randn(40, 8)


@FAMILY.add("slots", "loop", "attention")
def slot_attention():
    key_value, query, update = nn.Linear(6, 12), nn.Linear(6, 6), nn.GRUCell(6, 6)
    mean = nn.Parameter(torch.zeros(6))
    optimizer = torch.optim.Adam([*key_value.parameters(), *query.parameters(), *update.parameters(), mean])

    def loss_of(x):
        k, v = key_value(x).chunk(2, -1)
        slots = mean + 0.1 * torch.randn(len(x), 4, 6)
        for _ in range(3):
            share = torch.einsum("bnd,bsd->bns", k, query(F.layer_norm(slots, (6,)))).softmax(-1)
            share = share / share.sum(1, keepdim=True)
            slots = update(torch.einsum("bns,bnd->bsd", share, v).flatten(0, 1), slots.flatten(0, 1)).view_as(
                slots
            )
        return slots.var(1).mean() - torch.logdet(slots @ slots.mT + torch.eye(4)).mean() * 1e-3

    return descending(optimizer, loss_of, clears_first=True), torch.randn(4, 15, 6)


@FAMILY.add("recommender", "many tables")
def deep_recommender():
    tables = nn.ModuleDict({f"field_{i}": nn.Embedding(size, 4) for i, size in enumerate((7, 11, 5, 13))})
    bottom, top = nn.Linear(3, 4), nn.Sequential(nn.Linear(14, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adagrad(
        [*tables.parameters(), *bottom.parameters(), *top.parameters()], lr=0.05, lr_decay=1e-3
    )
    above = torch.triu_indices(5, 5, 1)

    def loss_of(batch):
        dense = F.relu(bottom(batch["dense"]))
        fields = [tables[name](batch["sparse"][name]) for name in tables]
        stacked = torch.stack([dense, *fields], 1)
        products = (stacked @ stacked.mT)[:, above[0], above[1]]
        return F.binary_cross_entropy_with_logits(
            top(torch.cat([dense, products], 1)).squeeze(1), batch["click"]
        )

    sparse = {f"field_{i}": torch.randint(0, size, (48,)) for i, size in enumerate((7, 11, 5, 13))}
    return descending(optimizer, loss_of, clears_first=True), {
        "dense": torch.randn(48, 3),
        "sparse": sparse,
        "click": torch.rand(48).round(),
    }
