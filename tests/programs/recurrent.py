"""Recurrent networks and what is done along a sequence: cells in loops, scans, dynamic programs."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family, descend, trained

FAMILY = Family("recurrent")


@FAMILY.add("lstm", "bidirectional", "projection", "dropout")
def bidirectional_lstm_tagger():
    embed = nn.Embedding(19, 6)
    lstm = nn.LSTM(6, 7, num_layers=2, bidirectional=True, dropout=0.2, proj_size=4, batch_first=True)
    head = nn.Linear(8, 5)

    def loss_of(batch):
        words, tags = batch
        return F.cross_entropy(head(lstm(embed(words))[0]).flatten(0, 1), tags.flatten(), ignore_index=-100)

    tags = torch.randint(0, 5, (4, 6))
    tags[:, 4:] = -100
    return trained(loss_of, embed, lstm, head), (torch.randint(0, 19, (4, 6)), tags)


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

    def loss_of(series):
        h, c = torch.zeros(series.shape[1], 8), torch.zeros(series.shape[1], 8)
        losses = []
        for now, following in itertools.pairwise(series.unbind()):
            h, c = cell(now, (h, c))
            losses.append((head(h) - following).abs().mean())
        return torch.stack(losses).mean()

    return trained(loss_of, cell, head), torch.randn(7, 6, 3)


@FAMILY.add("rnn", "packed")
def packed_sequences():
    rnn, head = nn.GRU(3, 6, batch_first=True), nn.Linear(6, 2)
    lengths = torch.tensor([6, 4, 2])

    def loss_of(batch):
        series, labels = batch
        packed = nn.utils.rnn.pack_padded_sequence(series, lengths, batch_first=True)
        _, last = rnn(packed)
        return F.cross_entropy(head(last[0]), labels)

    return trained(loss_of, rnn, head), (torch.randn(3, 6, 3), torch.randint(0, 2, (3,)))


@FAMILY.add("ctc", "tuple lengths")
def ctc_with_lengths_in_tuples():
    head = nn.Linear(5, 6)

    def loss_of(batch):
        features, transcript = batch
        return F.ctc_loss(head(features).log_softmax(-1), transcript, (10, 9, 8), (3, 3, 2), reduction="sum")

    return trained(loss_of, head), (torch.randn(10, 3, 5), torch.randint(1, 6, (3, 3)))


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
    offsets = torch.tensor([0, 3, 7, 12])

    def loss_of(batch):
        words, labels = batch
        found = torch.cat([bag(words, offsets) for bag in bags], 1)
        return F.cross_entropy(head(found), labels)

    return trained(loss_of, bags, head), (torch.randint(0, 30, (20,)), torch.randint(0, 3, (4,)))


@FAMILY.add("embedding", "renormalised")
def skip_gram_with_negative_samples():
    center = nn.Embedding(25, 6, max_norm=1.0)
    context = nn.Embedding(25, 6, padding_idx=0, scale_grad_by_freq=True)

    def loss_of(batch):
        middle, positive = batch
        negative = torch.randint(1, 25, (len(middle), 4))
        v = center(middle)
        good = (v * context(positive)).sum(-1)
        bad = torch.bmm(context(negative), v.unsqueeze(2)).squeeze(2)
        return -(F.logsigmoid(good) + F.logsigmoid(-bad).sum(1)).mean()

    return trained(loss_of, center, context), (torch.randint(0, 25, (16,)), torch.randint(1, 25, (16,)))


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
