"""Axes that rows of the op table found, as loops that run: the same numbers as without them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fission_play import assert_same_numbers
from neaptide.analysis.axes.follow import follow
from neaptide.ir.axes import Along, Need
from neaptide.ops import registry
from neaptide.runtime.steps.capturing import capture
from neaptide.transform.rules.fission import Fission, fission

BATCH, WORDS, SEQUENCE, WIDTH = 7, 11, 6, 8


class Block(nn.Module):
    """Attention with several heads, a norm and a perceptron."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 3 * WIDTH),
            nn.Linear(WIDTH, WIDTH),
        )
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, s, 3, 2, w // 2).permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, s, w))
        return x + self.down(F.gelu(self.up(x)))


def words():
    model = nn.ModuleDict(
        {"words": nn.Embedding(WORDS, WIDTH), "places": nn.Embedding(SEQUENCE, WIDTH), "block": Block()}
    )

    def loss(x, y):
        h = model["words"](x) + model["places"](torch.arange(SEQUENCE))
        scores = model["block"](h) @ model["words"].weight.T
        return F.cross_entropy(scores.flatten(0, 1), y.flatten(), reduction="sum") / (BATCH * SEQUENCE)

    return (
        model,
        loss,
        (torch.randint(0, WORDS, (BATCH, SEQUENCE)), torch.randint(0, WORDS, (BATCH, SEQUENCE))),
    )


def pictures():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.SiLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=4),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(32, 5),
    )

    def loss(x, y):
        return F.cross_entropy(model(x), y, reduction="sum") / BATCH

    return model, loss, (torch.randn(BATCH, 3, 8, 8), torch.randint(0, 5, (BATCH,)))


def step_of(made):
    torch.manual_seed(0)
    model, loss, batch = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(data):
        optimizer.zero_grad()
        found = loss(*data)
        found.backward()
        optimizer.step()
        return found.detach()

    return capture(step, (batch,)).steady.graph


def batch_inputs(graph):
    return {v: Along(0) for v in graph.inputs if graph.values[v].name.startswith("batch")}


def before_updates(graph):
    return [node.id for node in graph.nodes if node.source.phase != "optimizer"]


@pytest.mark.parametrize("made", [words])
@pytest.mark.parametrize("parts", [2, 3, 7])
def test_a_whole_step_runs_in_parts_of_the_batch(made, parts):
    graph = step_of(made)
    found = follow(graph, registry(), batch_inputs(graph), BATCH, before_updates(graph))
    assert not found.barriers
    assert not found.conditions
    inputs = batch_inputs(graph)
    rewrite = fission(graph, found.members, length=BATCH, parts=parts, inputs=inputs)
    split = Fission().apply(graph, registry(), rewrite).graph
    assert_same_numbers(split, graph)


def test_sizes_among_arguments_are_told():
    graph = step_of(pictures)
    found = follow(graph, registry(), batch_inputs(graph), BATCH, before_updates(graph))
    assert not found.barriers
    assert not found.conditions
    sized = {graph.nodes[n].op: line.axis.sizes for n, line in found.members.items() if line.axis.sizes}
    assert sized == {
        "aten.native_group_norm.default": (3,),
        "aten.native_group_norm_backward.default": (5,),
    }


def test_a_mean_is_told_and_so_is_the_sum_that_it_needs():
    def made():
        model = nn.Linear(3, 5)
        batch = (torch.randn(BATCH, 3), torch.randint(0, 5, (BATCH,)))
        return model, lambda x, y: F.cross_entropy(model(x), y), batch

    graph = step_of(made)
    found = follow(graph, registry(), batch_inputs(graph), BATCH, before_updates(graph))
    assert not found.barriers
    mean, complete = found.conditions
    assert (mean.need, complete.need) == (Need.MEAN, Need.COMPLETE)
    assert graph.nodes[mean.node].op == "aten.nll_loss_forward.default"
    assert complete.values == (graph.nodes[mean.node].outputs[1],)
