"""Gathers, scatters, sorts, masks, views and strides; graphs and point clouds, which are made of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family

FAMILY = Family("indexing")


def optimize(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


@FAMILY.add("graph", "index_add")
def graph_convolution_by_index_add():
    layers = nn.ModuleList([nn.Linear(5, 8), nn.Linear(8, 3)])
    optimizer = torch.optim.Adam(layers.parameters())

    def propagate(x, edges):
        source, target = edges
        degree = torch.zeros(len(x)).index_add(0, target, torch.ones(target.shape[0])).clamp(min=1)
        weight = (degree[source] * degree[target]).rsqrt().unsqueeze(1)
        return torch.zeros_like(x).index_add(0, target, weight * x[source])

    def step(graph):
        x = F.relu(propagate(layers[0](graph["x"]), graph["edges"]))
        logits = propagate(layers[1](x), graph["edges"])
        return optimize(F.cross_entropy(logits[graph["labelled"]], graph["y"]), optimizer)

    return step, {
        "x": torch.randn(20, 5),
        "edges": torch.randint(0, 20, (2, 60)),
        "labelled": torch.arange(0, 20, 3),
        "y": torch.randint(0, 3, (7,)),
    }


@FAMILY.add("graph", "attention", "scatter_reduce")
def graph_attention_by_scatter_softmax():
    project, score = nn.Linear(4, 6), nn.Linear(12, 1)
    optimizer = torch.optim.SGD([*project.parameters(), *score.parameters()], lr=0.1)

    def step(batch):
        nodes, (source, target) = batch
        x = project(nodes)
        e = F.leaky_relu(score(torch.cat([x[source], x[target]], 1)), 0.2).squeeze(1)
        highest = torch.full((len(nodes),), float("-inf")).scatter_reduce(0, target, e.detach(), "amax")
        share = torch.exp(e - highest[target])
        share = share / torch.zeros(len(nodes)).scatter_add(0, target, share)[target]
        out = torch.zeros_like(x).scatter_add(0, target[:, None].expand(-1, 6), share[:, None] * x[source])
        return optimize((out - x).square().mean(), optimizer)

    return step, (torch.randn(16, 4), (torch.randint(0, 16, (50,)), torch.arange(50) % 16))


@FAMILY.add("graph", "dense", "bmm")
def message_passing_on_adjacency_matrices():
    message, update = nn.Linear(6, 6), nn.GRUCell(6, 6)
    readout = nn.Linear(6, 1)
    optimizer = torch.optim.Adam([*message.parameters(), *update.parameters(), *readout.parameters()])

    def step(batch):
        x, adjacency, target = batch
        for _ in range(3):
            x = update((adjacency @ message(x)).flatten(0, 1), x.flatten(0, 1)).view_as(x)
        return optimize(F.l1_loss(readout(x).sum((1, 2)), target), optimizer)

    return step, (torch.randn(5, 7, 6), torch.rand(5, 7, 7).round(), torch.randn(5))


@FAMILY.add("segments", "include_self")
def segment_reductions():
    embed = nn.Linear(4, 6)
    optimizer = torch.optim.Adam(embed.parameters())

    def step(batch):
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
        return optimize(found.square().mean(), optimizer)

    return step, (torch.randn(30, 4), torch.arange(30) // 6)


@FAMILY.add("points", "max")
def point_net():
    local, head = (
        nn.Sequential(nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 12, 1)),
        nn.Linear(12, 4),
    )
    align = nn.Linear(3, 9)
    optimizer = torch.optim.Adam([*local.parameters(), *head.parameters(), *align.parameters()])

    def step(batch):
        points, labels = batch
        turn = align(points.amax(1)).view(-1, 3, 3) + torch.eye(3)
        pooled = local((points @ turn).mT).max(dim=2).values
        straight = torch.linalg.matrix_norm(turn @ turn.mT - torch.eye(3)).mean()
        return optimize(F.cross_entropy(head(pooled), labels) + 1e-3 * straight, optimizer)

    return step, (torch.randn(6, 24, 3), torch.randint(0, 4, (6,)))


@FAMILY.add("points", "neighbours", "topk")
def edge_convolution_on_nearest_neighbours():
    edge = nn.Sequential(nn.Linear(6, 10), nn.LeakyReLU(0.2), nn.Linear(10, 5))
    optimizer = torch.optim.AdamW(edge.parameters())

    def step(points):
        near = torch.cdist(points, points).topk(5, largest=False).indices[..., 1:]
        rows = torch.arange(len(points))[:, None, None]
        neighbours = points[rows, near]
        middle = points.unsqueeze(2).expand_as(neighbours)
        out = edge(torch.cat([middle, neighbours - middle], -1)).amax(2)
        return optimize(out.logsumexp(1).square().mean(), optimizer)

    return step, torch.randn(4, 16, 3)


@FAMILY.add("index_put", "accumulate")
def writing_through_indices():
    layer = nn.Linear(6, 6)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step(batch):
        x, rows, columns = batch
        h = layer(x)
        canvas = torch.zeros(10, 6)
        canvas[rows] = h[: len(rows)]
        canvas = canvas.index_put((columns, torch.arange(6)), h[0], accumulate=True)
        canvas[::2, 1:4] += 1.0
        canvas[0] = canvas[1] * 2
        canvas[..., -1] *= 0.5
        return optimize(canvas.square().mean(), optimizer)

    return step, (torch.randn(8, 6), torch.tensor([7, 3, 5]), torch.tensor([0, 0, 1, 9, 1, 9]))


@FAMILY.add("views", "inplace", "as_strided")
def aliases_of_every_kind():
    first, second = nn.Linear(8, 8), nn.Linear(4, 4)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.05)

    def step(x):
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
        return optimize(
            z.square().mean() + y.unfold(1, 4, 4).mean() + torch.movedim(windows, 0, 2).amax(), optimizer
        )

    return step, torch.randn(24, 8)


@FAMILY.add("masked", "where", "scatter")
def masks_and_fills():
    layer, mask_token = nn.Linear(6, 6), nn.Parameter(torch.zeros(6))
    optimizer = torch.optim.Adam([*layer.parameters(), mask_token])

    def step(batch):
        x, hidden = batch
        seen = torch.where(hidden.unsqueeze(-1), mask_token, x)
        out = layer(seen)
        out = out.masked_fill(out < -2, -2.0)
        wrong = (out - x).square().mean(-1)
        out2 = torch.zeros_like(out).masked_scatter(hidden.unsqueeze(-1).expand_as(out), out)
        return optimize((wrong * hidden).sum() / hidden.sum() + out2.abs().mean(), optimizer)

    return step, (torch.randn(4, 12, 6), torch.rand(4, 12) > 0.5)


@FAMILY.add("masked", "random order", "gather")
def masked_autoencoder():
    encode, decode = nn.Linear(8, 10), nn.Linear(10, 8)
    place, token = nn.Parameter(torch.randn(16, 10) * 0.1), nn.Parameter(torch.zeros(1, 1, 10))
    optimizer = torch.optim.AdamW(
        [*encode.parameters(), *decode.parameters(), place, token], betas=(0.9, 0.95)
    )

    def step(patches):
        count, length, _ = patches.shape
        order = torch.rand(count, length).argsort(1)
        back = order.argsort(1)
        kept = order[:, :4, None]
        x = encode(patches.gather(1, kept.expand(-1, -1, 8))) + place[order[:, :4]]
        x = torch.cat([F.gelu(x), token.expand(count, length - 4, -1)], 1)
        x = x.gather(1, back.unsqueeze(-1).expand(-1, -1, 10)) + place
        mask = torch.ones(count, length)
        mask[:, :4] = 0
        mask = mask.gather(1, back)
        return optimize(((decode(x) - patches).square().mean(-1) * mask).sum() / mask.sum(), optimizer)

    return step, torch.randn(4, 16, 8)


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
        return optimize(
            steps.square().mean()
            + highest.mean()
            + product.mean()
            + (picked * bins).mean()
            + third.mean()
            + (place * h[:, :2]).mean(),
            optimizer,
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
        return {"loss": optimize(loss, optimizer), "used": torch.bincount(nearest, minlength=10)}

    return step, torch.randn(40, 8)


@FAMILY.add("slots", "loop", "attention")
def slot_attention():
    key_value, query, update = nn.Linear(6, 12), nn.Linear(6, 6), nn.GRUCell(6, 6)
    mean = nn.Parameter(torch.zeros(6))
    optimizer = torch.optim.Adam([*key_value.parameters(), *query.parameters(), *update.parameters(), mean])

    def step(x):
        k, v = key_value(x).chunk(2, -1)
        slots = mean + 0.1 * torch.randn(len(x), 4, 6)
        for _ in range(3):
            share = torch.einsum("bnd,bsd->bns", k, query(F.layer_norm(slots, (6,)))).softmax(-1)
            share = share / share.sum(1, keepdim=True)
            slots = update(torch.einsum("bns,bnd->bsd", share, v).flatten(0, 1), slots.flatten(0, 1)).view_as(
                slots
            )
        return optimize(
            slots.var(1).mean() - torch.logdet(slots @ slots.mT + torch.eye(4)).mean() * 1e-3, optimizer
        )

    return step, torch.randn(4, 15, 6)


@FAMILY.add("capsules", "routing")
def capsules_with_routing():
    votes = nn.Parameter(torch.randn(10, 3, 4, 5) * 0.2)
    optimizer = torch.optim.Adam([votes])

    def squash(s):
        length = s.square().sum(-1, keepdim=True)
        return s * length.sqrt() / (1 + length)

    def step(batch):
        x, y = batch
        u = torch.einsum("bni,nkio->bnko", x, votes)
        agreement = torch.zeros(u.shape[:3])
        for round_ in range(3):
            v = squash((agreement.softmax(2).unsqueeze(-1) * u).sum(1))
            if round_ < 2:
                agreement = agreement + (u.detach() * v.unsqueeze(1).detach()).sum(-1)
        length, hot = v.norm(dim=-1), F.one_hot(y, 3)
        loss = hot * F.relu(0.9 - length).square() + 0.5 * (1 - hot) * F.relu(length - 0.1).square()
        return optimize(loss.sum(1).mean(), optimizer)

    return step, (torch.randn(8, 10, 4), torch.randint(0, 3, (8,)))


@FAMILY.add("recommender", "many tables")
def deep_recommender():
    tables = nn.ModuleDict({f"field_{i}": nn.Embedding(size, 4) for i, size in enumerate((7, 11, 5, 13))})
    bottom, top = nn.Linear(3, 4), nn.Sequential(nn.Linear(14, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adagrad(
        [*tables.parameters(), *bottom.parameters(), *top.parameters()], lr=0.05, lr_decay=1e-3
    )
    above = torch.triu_indices(5, 5, 1)

    def step(batch):
        dense = F.relu(bottom(batch["dense"]))
        fields = [tables[name](batch["sparse"][name]) for name in tables]
        stacked = torch.stack([dense, *fields], 1)
        products = (stacked @ stacked.mT)[:, above[0], above[1]]
        loss = F.binary_cross_entropy_with_logits(
            top(torch.cat([dense, products], 1)).squeeze(1), batch["click"]
        )
        return optimize(loss, optimizer)

    sparse = {f"field_{i}": torch.randint(0, size, (48,)) for i, size in enumerate((7, 11, 5, 13))}
    return step, {"dense": torch.randn(48, 3), "sparse": sparse, "click": torch.rand(48).round()}


@FAMILY.add("refused", "data dependent shape")
def boolean_mask_selects_rows():
    layer = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step(batch):
        x, valid = batch
        return optimize(layer(x[valid]).square().mean(), optimizer)

    return step, (torch.randn(12, 6), torch.rand(12) > 0.5)
