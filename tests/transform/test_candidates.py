"""Regions that are proposed: each, in any number of parts, makes the numbers of the whole in the bytes that are predicted."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neaptide.errors import RewriteError
from neaptide.ops import registry
from neaptide.runtime.steps.capturing import capture
from neaptide.transform.fission.candidates import candidates
from neaptide.transform.fission.spans import suffixes, whole_step
from neaptide.transform.rewrite import replay
from neaptide.transform.rules import RULES
from neaptide.transform.rules.fission import fission
from neaptide.transform.rules.mean_to_sum import mean_to_sum
from transform.fission_play import assert_close, peak, random_inputs, run_measured

BATCH, TOKENS, WORDS = 5, 6, 23


class Words(nn.Module):
    """Two blocks of causal attention, and logits that are wider than all else."""

    def __init__(self, width=8):
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.qkv = nn.ModuleList([nn.Linear(width, 3 * width) for _ in range(2)])
        self.mlps = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width)) for _ in range(2)]
        )

    def forward(self, tokens):
        h = self.embed(tokens)
        for norm, qkv, mlp in zip(self.norms, self.qkv, self.mlps, strict=False):
            q, k, v = qkv(norm(h)).view(*h.shape[:2], 3, 2, -1).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            h = h + mixed.transpose(1, 2).reshape(h.shape)
            h = h + mlp(h)
        return self.head(self.norms[2](h)).flatten(0, 1)


def words():
    labels = torch.randint(0, WORDS, (BATCH, TOKENS))
    labels[0, 1:] = -100  # parts have unequal numbers of labels that count
    return (
        Words(),
        lambda y, t: F.cross_entropy(y, t.flatten()),
        (torch.randint(0, WORDS, (BATCH, TOKENS)), labels),
    )


def smoothed():
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
    weights = torch.tensor([1.0, 2.0, 3.0])
    labels = torch.tensor([0, 2, 1, -100, 1])
    return (
        model,
        lambda y, t: F.cross_entropy(y, t, weights, label_smoothing=0.1),
        (torch.randn(5, 4), labels),
    )


def pictures():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.GroupNorm(2, 8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 4),
    )
    return model, F.mse_loss, (torch.randn(BATCH, 3, 8, 8), torch.randn(BATCH, 4))


def masked():
    """A mean by hand, over what a mask lets count."""
    model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def loss(y, t):
        mask = (t > -0.5).float()
        return ((y.squeeze(1) - t).square() * mask).sum() / mask.sum()

    return model, loss, (torch.randn(16, 4), torch.linspace(-1, 1, 16))


def normed():
    """Batch norm in training needs the whole batch."""
    model = nn.Sequential(
        nn.Linear(4, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32), nn.Linear(32, 3)
    )
    return model, F.cross_entropy, (torch.randn(BATCH, 4), torch.randint(0, 3, (BATCH,)))


STEPS = {made.__name__: made for made in (words, smoothed, pictures, masked, normed)}


@cache
def regions_of(name):
    """The captured graph, the one without the means that are in the way, and its regions."""
    torch.manual_seed(0)
    model, loss, batch = STEPS[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(data):
        optimizer.zero_grad()
        found = loss(model(data[0]), data[1])
        found.backward()
        optimizer.step()
        return found.detach()

    graph = capture(step, (batch,)).steady.graph
    means = {node for region in candidates(graph, registry()) for node in region.means}
    begun = replay(graph, registry(), [mean_to_sum(means)] if means else [], RULES).graph
    return graph, begun, candidates(begun, registry())


@pytest.mark.parametrize(
    "name",
    [
        "pictures",
        "masked",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("words", "smoothed", "normed")),
    ],
)
def test_every_region_in_parts_makes_the_numbers_of_the_whole(name):
    graph, begun, regions = regions_of(name)
    inputs = random_inputs(graph, indices_below=3)
    expected = run_measured(graph, inputs)
    assert all(not region.means for region in regions)
    run = 0
    for region in regions:
        for parts in {2, 3, region.length}:
            if parts > region.length:
                continue
            rewrite = fission(begun, region.members, length=region.length, parts=parts, inputs=region.seeds)
            try:
                edited = replay(begun, registry(), [rewrite], RULES)
            except RewriteError:
                continue
            assert_close(run_measured(edited.graph, inputs), expected)
            run += 1
    assert run >= 2


@pytest.mark.parametrize("name", ["words", "smoothed", "pictures", "masked"])
def test_the_whole_step_is_among_them_and_takes_all_but_the_updates(name):
    graph, begun, regions = regions_of(name)
    step = next(region for region in regions if region.kind == "step")
    assert step.share > 0.95
    span = whole_step(begun)
    heavy = [
        node
        for node in begun.nodes[span.start : span.end]
        if node.id not in step.members and begun.created_storages(node)
    ]
    # What is left makes numbers: how many labels count, and what the loss is divided by.
    assert all(begun.values[node.outputs[0]].nbytes.constant_value() <= 8 * 16 for node in heavy)
    if name in ("words", "pictures"):  # the others have more weights, and so gradients, than activations
        rewrite = fission(begun, step.members, length=step.length, parts=step.length, inputs=step.seeds)
        assert peak(replay(begun, registry(), [rewrite], RULES).graph) < peak(graph)


def test_what_needs_the_whole_batch_is_in_no_region_along_it():
    _, begun, regions = regions_of("normed")
    norms = {node.id for node in begun.nodes if "batch_norm" in node.op}
    assert norms
    assert all(norms.isdisjoint(region.members) for region in regions if region.length == BATCH)


def test_suffixes_begin_behind_each_block_and_end_where_their_gradient_is():
    _, begun, _ = regions_of("words")
    spans = suffixes(begun)
    assert len(spans) >= 2
    assert list(spans) == sorted(spans, key=lambda span: span.start)
    ends = [span.end for span in spans]
    assert ends == sorted(ends, reverse=True)
    assert all(begun.nodes[span.end - 1].source.phase == "backward" for span in spans)


def pieces(graph, members):
    """How many pieces some nodes fall into that no value of one of them connects."""
    piece = {number: {number} for number in members}
    for number in members:
        for maker in map(graph.producer, graph.nodes[number].inputs):
            if maker in piece and piece[maker] is not piece[number]:
                both = piece[maker] | piece[number]
                piece.update(dict.fromkeys(both, both))
    return len({id(one) for one in piece.values()})


def test_a_region_may_be_of_pieces_that_only_share_what_is_handed_to_them():
    def step(x):
        return (x.exp().sum(0) * x.sin().cos().sum(0)).sum()

    graph = capture(step, (torch.randn(6, 5),)).steady.graph
    (rows,) = [made for made in candidates(graph, registry()) if made.length == 6]
    assert pieces(graph, rows.members) == 2
    inputs = random_inputs(graph)
    expected = run_measured(graph, inputs)
    for parts in (2, 4, 6):
        split = fission(graph, rows.members, length=6, parts=parts, inputs=rows.seeds)
        made = replay(graph, registry(), [split], RULES).graph
        assert sum(bool(node.regions) for node in made.nodes) == 1
        assert_close(run_measured(made, inputs), expected)
