"""Wide stretches and their backwards: found once for all blocks that repeat, and the numbers of the whole in any number of parts."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neaptide.errors import RewriteError
from neaptide.ops import registry
from neaptide.planner.variants.variant import Variant
from neaptide.runtime.steps.capturing import capture
from neaptide.transform.fission.expand_contract import backwards_recomputing, expand_contract
from neaptide.transform.rewrite import Rewrite, replay
from neaptide.transform.rules import RULES
from neaptide.transform.rules.rematerialisation import Again, rematerialisation
from planner.variants.variant_search import choices_of_all
from support.steps import trained
from transform.fission_play import assert_close, peak, random_inputs, run_measured

ROWS, TOKENS, WIDTH, BLOCKS = 3, 10, 8, 3


class Gated(nn.Module):
    """Two wide products of one narrow value."""

    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, 5 * WIDTH), nn.Linear(WIDTH, 5 * WIDTH, bias=False)
        self.down = nn.Linear(5 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


def plain_block():
    return nn.Sequential(nn.Linear(WIDTH, 6 * WIDTH), nn.GELU(), nn.Linear(6 * WIDTH, WIDTH))


class Residual(nn.Module):
    """Blocks of one kind, and logits; the first weights are shared by two blocks, or a norm is after them, where asked for."""

    def __init__(self, block, *, shared=False, bare=False):
        super().__init__()
        self.last = nn.Identity() if bare else nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList([block() for _ in range(BLOCKS)])
        if shared:
            self.blocks[1] = self.blocks[0]
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(BLOCKS)])
        self.head = nn.Linear(WIDTH, 30)

    def forward(self, x):
        for norm, block in zip(self.norms, self.blocks, strict=True):
            x = x + block(norm(x))
        return self.head(self.last(x)).flatten(0, -2)


MODELS = {
    "plain": lambda: Residual(plain_block),
    "gated": lambda: Residual(Gated),
    "shared": lambda: Residual(plain_block, shared=True),
    "bare": lambda: Residual(plain_block, bare=True),
}


@cache
def captured(name, rows=ROWS):
    torch.manual_seed(0)
    model = MODELS[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    step = trained(optimizer, lambda data: F.cross_entropy(model(data[0]), data[1]))

    batch = (torch.randn(rows, TOKENS, WIDTH), torch.randint(0, 30, (rows * TOKENS,)))
    return capture(step, (batch,)).steady.graph


def chosen(graph):
    choices = choices_of_all()
    found = choices.after(Variant.captured(graph))
    return choices, [choice for choice in found if choice.regions[0].kind == "expand_contract"]


@pytest.mark.parametrize("name", MODELS)
def test_blocks_that_repeat_are_one_family(name):
    (family,) = expand_contract(captured(name), 0.0)
    assert len(family) == BLOCKS
    assert len({made.nbytes for made in family}) == 1
    nodes = [n for made in family for n in (*made.forward, *made.backward)]
    assert len(nodes) == len(set(nodes))


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("bare", ROWS),
        *(pytest.param(name, rows, marks=pytest.mark.slow) for name in MODELS for rows in (1, ROWS)),
    ],
)
def test_in_any_number_of_parts_they_make_the_numbers_of_the_whole(name, rows):
    graph = captured(name, rows)
    inputs = random_inputs(graph)
    expected = run_measured(graph, inputs)
    choices, found = chosen(graph)
    # Rows and tokens; of one row there is no axis but the tokens.
    assert {choice.length for choice in found} == {rows, TOKENS} - {1}
    for choice in found:
        # Without a norm after the last block its gradient comes flat, and no view of it has a dim of tokens.
        blocks = BLOCKS - (name == "bare" and rows > 1 and choice.length == TOKENS)
        assert len(choice.regions) == 2 * blocks
        for parts in {3, choice.length}:
            made = choices.taken(choice, parts)
            assert made is not None, choices.refusals
            assert_close(run_measured(made.graph, inputs), expected)
            assert sum(bool(node.regions) for node in made.graph.nodes) == 2 * blocks


def test_tokens_are_split_although_rows_and_tokens_are_flattened_in_between():
    graph = captured("plain")
    choices, found = chosen(graph)
    tokens = next(choice for choice in found if choice.length == TOKENS)
    made = choices.taken(tokens, TOKENS)
    wide = ROWS * TOKENS * 6 * WIDTH * 4
    whole = [s for s in made.graph.storages if s.nbytes.constant_value() >= wide]
    assert any(s.nbytes.constant_value() >= wide for s in graph.storages)
    assert not whole


def random_group(graph, seed):
    """Some nodes in front of some place, and users after it."""
    draw = random.Random(seed)
    place = draw.randrange(2, len(graph.nodes))
    nodes = sorted(draw.sample(range(place), min(place, draw.randrange(1, 12))))
    results = {v for n in nodes for v in graph.nodes[n].outputs}
    users = [n for n in range(place, len(graph.nodes)) if not results.isdisjoint(graph.nodes[n].inputs)]
    return Again(tuple(nodes), tuple(users[: draw.randrange(1, 6)]))


@pytest.mark.parametrize("name", ["gated", pytest.param("shared", marks=pytest.mark.slow)])
def test_what_is_made_again_has_the_same_bits(name):
    graph = captured(name)
    inputs = random_inputs(graph)
    expected = run_measured(graph, inputs)
    done, refused = 0, set()
    for seed in range(20):
        group = random_group(graph, seed)
        if not group.users:
            continue
        try:
            edited = replay(graph, registry(), [rematerialisation([group])], RULES)
        except RewriteError as error:
            refused.add(error.what)
            continue
        copies = [n for n, old in enumerate(edited.node_of) if old < 0]
        assert len(copies) == len(group.nodes)
        found = run_measured(edited.graph, inputs)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        done += 1
    assert done >= 4


def written_over():
    """A product of weights that the optimizer overwrites in between, and dropout."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        doubled = model[0].weight.detach() * 2
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach(), doubled.neg()

    return capture(step, (torch.randn(3, 4),)).steady.graph


def test_what_would_not_be_made_as_before_is_refused():
    graph = written_over()
    writers = {n.id for n in graph.nodes if n.effects.writes}
    drawing = next(n for n in graph.nodes if n.effects.rng)
    users = graph.consumers()

    def reason(rewrite):
        with pytest.raises(RewriteError) as refused:
            replay(graph, registry(), [rewrite], RULES)
        return refused.value.what

    user = users[drawing.outputs[0]][0]
    assert "does more than to make results" in reason(rematerialisation([Again((drawing.id,), (user,))]))
    first = next(n for n in graph.nodes if n.outputs and n.effects.is_pure and users[n.outputs[0]])
    other = next(n.id for n in graph.nodes if set(n.inputs).isdisjoint(first.outputs) and n.id > first.id)
    assert "uses nothing of" in reason(rematerialisation([Again((first.id,), (other,))]))
    last = users[first.outputs[0]][0]
    assert "in their order" in reason(Rewrite("rematerialisation", (last, first.id), (("groups", (1, 1)),)))
    assert "must name groups" in reason(Rewrite("rematerialisation", (first.id, last), (("groups", (1, 2)),)))
    assert "must name groups" in reason(Rewrite("rematerialisation", (first.id, last)))
    assert "does not keep the bits" in reason(
        Rewrite("rematerialisation", (first.id, last), (("groups", (1, 1)),), keeps_bits=False)
    )
    late = next(
        (n, u)
        for n in graph.nodes
        if n.effects.is_pure and n.outputs and graph.created_storages(n)
        for u in users[n.outputs[0]]
        if any(
            w > n.id
            and w < u
            and {a.storage for a in graph.nodes[w].effects.writes} & {a.storage for a in n.effects.reads}
            for w in writers
        )
    )
    assert "is overwritten before the second run" in reason(
        rematerialisation([Again((late[0].id,), (late[1],))])
    )


def test_logits_and_loss_of_a_batch_are_split_along_its_tokens():
    graph = words_step()
    inputs = random_inputs(graph)
    expected = run_measured(graph, inputs)
    choices = choices_of_all()
    begun = choices.begun(graph)
    tokens = [
        choice for choice in choices.after(begun) if choice.length == TOKENS and choice.regions[0].views
    ]
    assert tokens
    # The labels are handed over row by row and token by token, and flattened for each part.
    for parts in (3, TOKENS):
        made = choices.taken(tokens[-1], parts)
        assert made is not None, choices.refusals
        assert_close(run_measured(made.graph, inputs), expected)
        assert peak(made.graph) < peak(graph)


@cache
def words_step():
    """Logits of a batch, whose labels are counted before the loss, and flattened once for both."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 200))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(data):
        optimizer.zero_grad()
        x, labels = data[0], data[1].clone().view(-1)
        loss = F.cross_entropy(model(x.cumsum(1)).flatten(0, 1), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    labels = torch.randint(0, 200, (ROWS, TOKENS))
    labels[0, 1:] = -100
    return capture(step, ((torch.randn(ROWS, TOKENS, WIDTH), labels),)).steady.graph


def test_the_rest_of_the_step_can_be_split_beside_them_in_either_order():
    graph = captured("plain")
    inputs = random_inputs(graph)
    expected = run_measured(graph, inputs)
    choices = choices_of_all()
    begun = choices.begun(graph)
    for kinds in (("expand_contract", "suffix"), ("suffix", "expand_contract")):
        variant = begun
        for kind in kinds:
            # The shortest suffix: the logits and their loss.
            among = [c for c in choices.after(variant) if c.regions[0].kind == kind]
            choice = min(among, key=lambda c: (len(c.regions[0].members), -c.length))
            variant = choices.taken(choice, 3)
            assert variant is not None, choices.refusals
            assert_close(run_measured(variant.graph, inputs), expected)
        assert len(variant.labels) == 2
        # The last block may lie after the place where the suffix begins.
        assert sum(bool(node.regions) for node in variant.graph.nodes) > 2 * (BLOCKS - 1)
        assert peak(variant.graph) < peak(graph)
        again = replay(graph, registry(), variant.rewrites, RULES)
        assert again.graph == variant.graph


def test_backwards_that_recompute_keep_every_bit():
    graph = captured("gated")
    (family,) = expand_contract(graph, 0.0)
    inputs = random_inputs(graph)
    edited = replay(graph, registry(), [backwards_recomputing(family)], RULES)
    pairs = zip(run_measured(edited.graph, inputs), run_measured(graph, inputs), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
