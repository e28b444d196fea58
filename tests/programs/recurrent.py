"""Recurrent networks and what is done along a sequence: cells in loops, scans, dynamic programs."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family, descend, descending

FAMILY = Family("recurrent")


@FAMILY.add("rnn")
def elman_regression():
    rnn, head = nn.RNN(3, 8, nonlinearity="relu", batch_first=True), nn.Linear(8, 1)
    optimizer = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.01)

    def step(batch):
        series, target = batch
        _, last = rnn(series)
        loss = F.mse_loss(head(last[-1]), target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(rnn.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step, (torch.randn(10, 8, 3), torch.randn(10, 1))


@FAMILY.add("lstm", "bidirectional", "projection", "dropout")
def bidirectional_lstm_tagger():
    embed = nn.Embedding(19, 6)
    lstm = nn.LSTM(6, 7, num_layers=2, bidirectional=True, dropout=0.2, proj_size=4, batch_first=True)
    head = nn.Linear(8, 5)
    optimizer = torch.optim.Adam([*embed.parameters(), *lstm.parameters(), *head.parameters()])

    def loss_of(batch):
        words, tags = batch
        return F.cross_entropy(head(lstm(embed(words))[0]).flatten(0, 1), tags.flatten(), ignore_index=-100)

    tags = torch.randint(0, 5, (4, 6))
    tags[:, 4:] = -100
    return descending(optimizer, loss_of, clears_first=True), (torch.randint(0, 19, (4, 6)), tags)


@FAMILY.add("gru", "state")
def gru_with_a_carried_state():
    gru, head = nn.GRU(4, 6), nn.Linear(6, 4)
    hidden = torch.zeros(1, 5, 6)
    optimizer = torch.optim.RMSprop([*gru.parameters(), *head.parameters()])

    def step(x):
        out, last = gru(x[:-1], hidden)
        loss = F.mse_loss(head(out), x[1:])
        descend(optimizer, loss)
        hidden.copy_(last.detach())
        return loss.detach()

    return step, torch.randn(7, 5, 4)


@FAMILY.add("lstm", "cell", "loop")
def lstm_cell_loop():
    cell, head = nn.LSTMCell(3, 8), nn.Linear(8, 3)
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()])

    def loss_of(series):
        h, c = torch.zeros(series.shape[1], 8), torch.zeros(series.shape[1], 8)
        losses = []
        for now, following in itertools.pairwise(series.unbind()):
            h, c = cell(now, (h, c))
            losses.append((head(h) - following).abs().mean())
        return torch.stack(losses).mean()

    return descending(optimizer, loss_of), torch.randn(7, 6, 3)


@FAMILY.add("rnn", "packed")
def packed_sequences():
    rnn, head = nn.GRU(3, 6, batch_first=True), nn.Linear(6, 2)
    optimizer = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.1)
    lengths = torch.tensor([6, 4, 2])

    def loss_of(batch):
        series, labels = batch
        packed = nn.utils.rnn.pack_padded_sequence(series, lengths, batch_first=True)
        _, last = rnn(packed)
        return F.cross_entropy(head(last[0]), labels)

    return descending(optimizer, loss_of), (torch.randn(3, 6, 3), torch.randint(0, 2, (3,)))


@FAMILY.add("gru", "attention", "teacher forcing")
def sequence_to_sequence_with_attention():
    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.source, self.target = nn.Embedding(13, 6), nn.Embedding(11, 6)
            self.encode, self.cell = nn.GRU(6, 8, batch_first=True), nn.GRUCell(14, 8)
            self.query, self.key, self.score, self.out = (
                nn.Linear(8, 8),
                nn.Linear(8, 8),
                nn.Linear(8, 1, bias=False),
                nn.Linear(16, 11),
            )

        def forward(self, source, target):
            states, last = self.encode(self.source(source))
            hidden, logits = last[0], []
            for word in self.target(target[:, :-1]).unbind(1):
                weights = self.score(torch.tanh(self.query(hidden).unsqueeze(1) + self.key(states))).softmax(
                    1
                )
                context = (weights * states).sum(1)
                hidden = self.cell(torch.cat([word, context], 1), hidden)
                logits.append(self.out(torch.cat([hidden, context], 1)))
            return torch.stack(logits, 1)

    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def loss_of(batch):
        return F.cross_entropy(model(*batch).transpose(1, 2), batch[1][:, 1:], label_smoothing=0.1)

    return descending(optimizer, loss_of, clears_first=True), (
        torch.randint(0, 13, (4, 5)),
        torch.randint(0, 11, (4, 6)),
    )


@FAMILY.add("ctc", "tuple lengths")
def ctc_with_lengths_in_tuples():
    head = nn.Linear(5, 6)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)

    def loss_of(batch):
        features, transcript = batch
        return F.ctc_loss(head(features).log_softmax(-1), transcript, (10, 9, 8), (3, 3, 2), reduction="sum")

    return descending(optimizer, loss_of, clears_first=True), (
        torch.randn(10, 3, 5),
        torch.randint(1, 6, (3, 3)),
    )


@FAMILY.add("dynamic programming", "soft-dtw")
def soft_dynamic_time_warping():
    warp = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(warp.parameters(), lr=0.05)

    def loss_of(batch):
        left, right = batch
        cost = torch.cdist(warp(left), right).square()
        rows = [[None] * (cost.shape[2] + 1) for _ in range(cost.shape[1] + 1)]
        far = cost.new_full((len(cost),), 1e4)
        rows[0] = [cost.new_zeros(len(cost)), *[far] * cost.shape[2]]
        for i in range(1, cost.shape[1] + 1):
            rows[i][0] = far
            for j in range(1, cost.shape[2] + 1):
                before = torch.stack([rows[i - 1][j - 1], rows[i - 1][j], rows[i][j - 1]])
                rows[i][j] = cost[:, i - 1, j - 1] - torch.logsumexp(-before, 0)
        return rows[-1][-1].mean()

    return descending(optimizer, loss_of, clears_first=True), (torch.randn(4, 4, 2), torch.randn(4, 4, 2))


@FAMILY.add("state space", "scan")
def selective_state_space():
    class Selective(nn.Module):
        def __init__(self, width=6, states=4):
            super().__init__()
            self.enter, self.leave = nn.Linear(width, 2 * width), nn.Linear(width, width)
            self.select = nn.Linear(width, 2 * states + width)
            self.conv = nn.Conv1d(width, width, 3, padding=2, groups=width)
            self.log_a, self.skip = (
                nn.Parameter(torch.arange(1.0, states + 1).log().repeat(width, 1)),
                nn.Parameter(torch.ones(width)),
            )

        def forward(self, x):
            u, gate = self.enter(x).chunk(2, -1)
            u = F.silu(self.conv(u.mT)[..., : x.shape[1]].mT)
            b, c, delta = self.select(u).split([4, 4, 6], -1)
            delta = F.softplus(delta)
            decay = torch.exp(-delta.unsqueeze(-1) * self.log_a.exp())
            drive = delta.unsqueeze(-1) * b.unsqueeze(2) * u.unsqueeze(-1)
            state, found = torch.zeros_like(drive[:, 0]), []
            for i in range(x.shape[1]):
                state = decay[:, i] * state + drive[:, i]
                found.append((state * c[:, i, None]).sum(-1))
            return self.leave((torch.stack(found, 1) + self.skip * u) * F.silu(gate))

    model = Selective()
    optimizer = torch.optim.AdamW(model.parameters())

    return descending(optimizer, lambda x: F.mse_loss(model(x[:, :-1]), x[:, 1:])), torch.randn(4, 8, 6)


@FAMILY.add("truncated", "several backwards")
def truncated_back_propagation_through_time():
    cell, head = nn.RNNCell(3, 6), nn.Linear(6, 3)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01, momentum=0.9)

    def step(series):
        hidden = torch.zeros(series.shape[1], 6)
        total = 0.0
        for part in series.split(4):
            hidden = hidden.detach()
            loss = 0.0
            for x in part:
                hidden = cell(x, hidden)
                loss = loss + (head(hidden) - x).square().mean()
            descend(optimizer, loss)
            total = total + loss.detach()
        return total

    return step, torch.randn(8, 12, 3)


@FAMILY.add("embedding bag")
def bag_of_words():
    bags = nn.ModuleList([nn.EmbeddingBag(30, 8, mode=mode) for mode in ("sum", "mean", "max")])
    head = nn.Linear(24, 3)
    optimizer = torch.optim.Adagrad([*bags.parameters(), *head.parameters()])
    offsets = torch.tensor([0, 3, 7, 12])

    def loss_of(batch):
        words, labels = batch
        found = torch.cat([bag(words, offsets) for bag in bags], 1)
        return F.cross_entropy(head(found), labels)

    return descending(optimizer, loss_of, clears_first=True), (
        torch.randint(0, 30, (20,)),
        torch.randint(0, 3, (4,)),
    )


@FAMILY.add("embedding", "renormalised")
def skip_gram_with_negative_samples():
    center = nn.Embedding(25, 6, max_norm=1.0)
    context = nn.Embedding(25, 6, padding_idx=0, scale_grad_by_freq=True)
    optimizer = torch.optim.SGD([*center.parameters(), *context.parameters()], lr=0.5)

    def loss_of(batch):
        middle, positive = batch
        negative = torch.randint(1, 25, (len(middle), 4))
        v = center(middle)
        good = (v * context(positive)).sum(-1)
        bad = torch.bmm(context(negative), v.unsqueeze(2)).squeeze(2)
        return -(F.logsigmoid(good) + F.logsigmoid(-bad).sum(1)).mean()

    return descending(optimizer, loss_of, clears_first=True), (
        torch.randint(0, 25, (16,)),
        torch.randint(1, 25, (16,)),
    )


@FAMILY.add("embedding", "sparse gradient")
def sparse_embedding():
    embed, head = nn.Embedding(25, 6, sparse=True), nn.Linear(6, 2)
    slow, fast = torch.optim.SparseAdam(embed.parameters()), torch.optim.Adam(head.parameters())

    def step(batch):
        words, labels = batch
        loss = F.cross_entropy(head(embed(words).mean(1)), labels)
        for optimizer in (slow, fast):
            optimizer.zero_grad()
        loss.backward()
        for optimizer in (slow, fast):
            optimizer.step()
        return loss.detach()

    return step, (torch.randint(0, 25, (6, 3)), torch.randint(0, 2, (6,)))
