"""Rewrites within the bodies of loops: parts in parts, of the same numbers and exactly the predicted bytes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.errors import RewriteError
from neaptide.frontends.state.state_finder import find_state
from neaptide.ir.axes import Along
from neaptide.ir.edits.edit import Edited
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ir.schedule import Schedule
from neaptide.ir.text.parser import parse_graph
from neaptide.ir.text.writer import print_graph
from neaptide.ops import registry
from neaptide.runtime.comparing.verification import compare_records, record_eager, record_planned
from neaptide.runtime.measuring.tolerance import Tolerance
from neaptide.runtime.steps.planned_step import PlannedStep
from neaptide.transform.fission.candidates import candidates
from neaptide.transform.rewrite import Rewrite, replay, sizes_within
from neaptide.transform.rules import RULES
from neaptide.transform.rules.fission import fission
from support.catalogue import captured_on, graph_of
from support.drawn import examples
from support.step_checks import as_variant
from support.steps import trained
from support.together import together
from transform.fission_play import (
    assert_close,
    assert_same_numbers,
    edited_step,
    peak,
    random_inputs,
    run_measured,
)

SENTENCES, TOKENS, WORDS, WIDTH = 5, 7, 37, 8


class Tied(nn.Module):
    """A mixing over tokens and an MLP between an embedding and the same as a head: its gradient is a sum of two."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.mix = nn.Linear(TOKENS, TOKENS)
        self.wide, self.narrow = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, tokens):
        h = self.embed(tokens)
        h = h + self.mix(h.transpose(1, 2)).transpose(1, 2)
        h = h + self.narrow(F.gelu(self.wide(h)))
        return h.reshape(-1, WIDTH) @ self.embed.weight.t()


def tied_step(dtype=torch.float32):
    """A step over 5 sentences of 7 tokens: 35 tokens meet 37 words in the logits."""
    model = Tied().to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    step = trained(
        optimizer,
        lambda batch: (
            F.cross_entropy(model(batch[0]), batch[1].view(-1), reduction="sum") / (SENTENCES * TOKENS)
        ),
    )

    torch.manual_seed(1)
    shape = (SENTENCES, TOKENS)
    return step, (torch.randint(0, WORDS, shape), torch.randint(0, WORDS, shape))


def found(graph, kind, length):
    """The largest region of a kind along an axis of some length."""
    return next(c for c in candidates(graph, registry()) if c.kind == kind and c.length == length)


def in_parts(graph, region, parts, within=()):
    made = fission(graph, region.members, length=region.length, parts=parts, inputs=region.seeds)
    return replace(made, within=within)


def loops_of(graph):
    return [node.id for node in graph.nodes if node.regions]


def outer_rewrite(graph, parts):
    """Forward and backward in parts along the batch."""
    return in_parts(graph, found(graph, "step", SENTENCES), parts)


def inner_regions(graph):
    """The body of the only loop of a graph, regions of it that may run in parts, and what leads there."""
    (loop,) = loops_of(graph)
    body = graph.nodes[loop].regions[0].body
    sizes = sizes_within(graph, loop)
    proposed = candidates(with_sizes(body, sizes[0]), registry())
    return body, [c for c in proposed if is_legal(graph, in_parts(body, c, 2, (loop,)))], (loop,)


def is_legal(graph, rewrite):
    try:
        replay(graph, registry(), [rewrite], RULES)
    except RewriteError:
        return False
    return True


def nested(graph, parts, inner_parts):
    """The whole step in parts along the batch, and in each the logits in parts along the tokens."""
    outer = outer_rewrite(graph, parts)
    around = replay(graph, registry(), [outer], RULES).graph
    body, regions, within = inner_regions(around)
    tokens = -(-SENTENCES // parts) * TOKENS
    return [outer, in_parts(body, next(c for c in regions if c.length == tokens), inner_parts, within)]


@cache
def nested_in_threes():
    return tuple(nested(graph_of(tied_step), 3, 3))


@settings(max_examples=examples(15), deadline=None)
@given(st.data())
def test_any_region_of_a_body_in_any_number_of_parts_makes_the_same_numbers(data):
    graph = graph_of(tied_step)
    outer = outer_rewrite(graph, data.draw(st.integers(2, SENTENCES), label="parts"))
    around = replay(graph, registry(), [outer], RULES).graph
    body, regions, within = inner_regions(around)
    region = data.draw(st.sampled_from(regions), label="region")
    inner = in_parts(body, region, data.draw(st.integers(2, region.length), label="inner parts"), within)
    made = replay(graph, registry(), [outer, inner], RULES).graph
    assert_same_numbers(made, graph)
    check_schedule(made, Schedule.program_order(made), registry())
    assert parse_graph(print_graph(made)) == made


def test_shorter_last_parts_at_both_levels_and_further_levels():
    """5 sentences in 2, 2 and 1; their 14 and 7 tokens in 5, 5 and 4, and 5 and 2; each of these in parts of 2."""
    graph = graph_of(tied_step)
    rewrites = list(nested_in_threes())
    made = replay(graph, registry(), rewrites, RULES).graph
    (loop,) = loops_of(made)
    body = made.nodes[loop].regions[0].body
    (inner,) = loops_of(body)
    sizes = sizes_within(body, inner, sizes_within(made, loop))
    assert [each["part_2"] for each in sizes] == [5, 4, 5, 2]
    deep = with_sizes(body.nodes[inner].regions[0].body, sizes[0])
    region = next(c for c in candidates(deep, registry()) if c.length == 5)
    further = in_parts(deep, region, 3, (loop, inner))
    deepest = replay(graph, registry(), [*rewrites, further], RULES).graph
    inputs = random_inputs(graph)
    expected = run_measured(graph, inputs)
    assert_close(run_measured(made, inputs), expected)
    assert_close(run_measured(deepest, inputs), expected)
    assert peak(deepest) < peak(made) < peak(replay(graph, registry(), rewrites[:1], RULES).graph)


def bodies(graph):
    """A graph and the bodies in it, outermost first."""
    found = [graph]
    for node in graph.nodes:
        found += [body for loop in node.regions for body in bodies(loop.body)]
    return found


def test_parts_of_parts_take_what_parts_of_the_same_length_take():
    """Gradients are added where the outer loop adds them: there is no sum of the inner loop beside."""
    graph = graph_of(tied_step)
    outer = outer_rewrite(graph, 2)
    body, regions, within = inner_regions(replay(graph, registry(), [outer], RULES).graph)
    region = next(c for c in regions if c.kind == "step" and c.length == 3)
    made = replay(graph, registry(), [outer, in_parts(body, region, 3, within)], RULES).graph
    flat = replay(graph, registry(), [outer_rewrite(graph, SENTENCES)], RULES).graph
    assert peak(made) == peak(flat)
    (inner,) = [node for node in bodies(made)[1].nodes if node.regions]
    assert not inner.outputs
    assert len(inner.effects.writes) == len(made.nodes[loops_of(made)[0]].outputs)


OF_AN_INPUT = """graph "g" {
  input %x: f32[7, 4] kind(input)
  input %s: f32[7, 4] kind(input)
  %a: f32[7, 4] = aten.exp.default(%x) reads(@x)
  neaptide.put(%s, %a) reads(@a) writes(@s.1)
  %b: f32[7, 4] = aten.exp.default(%s) reads(@s.1)
  output(%b)
}"""


def test_what_is_read_behind_a_write_is_no_destination():
    graph = parse_graph(OF_AN_INPUT)
    made = fission(graph, [0, 1], length=7, parts=2, inputs={0: Along(0), 1: Along(0)})
    with pytest.raises(RewriteError, match="overwrites s, which is made outside the region"):
        replay(graph, registry(), [made], RULES)


@pytest.mark.parametrize(
    ("dtype", "most"), [(torch.float32, 2e-6), pytest.param(torch.bfloat16, 0.1, marks=pytest.mark.slow)]
)
def test_a_step_in_parts_of_parts_trains_as_eager_does(dtype, most):
    torch.manual_seed(0)
    step, batch = tied_step(dtype)
    expected = record_eager(step, (batch,), steps=3, seed=1)
    torch.manual_seed(0)
    step, batch = tied_step(dtype)

    captured = edited_step(
        captured_on(partial(tied_step, dtype), step, batch),
        lambda graph: replay(graph, registry(), nested(graph, 3, 3), RULES),
    )
    runner = PlannedStep(step, None, as_variant(captured))
    made = record_planned(runner, find_state(step), (batch,), steps=3, seed=1)
    told = compare_records(made, expected, Tolerance.of([captured.steady.graph], registry()))
    assert told.agrees
    assert not told.bitwise_equal
    assert max(told.max_abs_diff.values()) < most


def test_what_is_moved_keeps_its_place_in_the_body():
    graph = graph_of(tied_step)
    made = Rewrite("fission", (3, 4), within=(2, 1))
    outer = Edited(graph, (0, -1, 1, 2), (), (), ())
    assert made.moved(outer) == replace(made, within=(3, 1))
    assert made.moved(replace(outer, node_of=(0, 1, 3, 4))) is None
    body = Edited(graph, (1, 0), (), (), ())
    inside = Edited(graph, (-1, 3, 4), (), (), ())
    both = replace(outer, bodies={3: replace(body, bodies={0: inside})})
    assert made.moved(both) == replace(made, nodes=(1, 2), within=(3, 0))
    assert made.moved(replace(outer, bodies={3: replace(body, bodies={0: body})})) is None


@together(
    ("change", "why"),
    [
        (lambda made: replace(made, within=(0,)), "node 0 is no loop, and nothing is within it"),
        (lambda made: replace(made, within=(10**6,)), "node 1000000 is no loop"),
        (lambda made: replace(made, within=(*made.within, 0)), "node 0 is no loop"),
        (lambda made: replace(made, within=()), "cannot be applied"),
        (lambda made: replace(made, nodes=(*made.nodes, 10**6)), "node 1000000 is none of the"),
        (lambda made: replace(made, keeps_bits=True), "says that it keeps the bits"),
    ],
)
def test_what_a_file_says_of_a_body_is_checked(change, why):
    graph = graph_of(tied_step)
    outer, inner = nested_in_threes()
    with pytest.raises(RewriteError, match=why) as refused:
        replay(graph, registry(), [outer, change(inner)], RULES)
    assert "\n" not in refused.value.what


def test_an_axis_that_does_not_follow_from_the_part_is_refused():
    """14 and 7 tokens are in a part: runs of 8 are no axis of either."""
    graph = graph_of(tied_step)
    outer, inner = nested_in_threes()
    settings = tuple((name, 8 if name == "length" else found) for name, found in inner.settings)
    with pytest.raises(RewriteError, match=r"rewrite 1 \(fission\) cannot be applied"):
        replay(graph, registry(), [outer, replace(inner, settings=settings)], RULES)


def test_the_axis_that_the_loop_around_has_cut_may_be_cut_again():
    graph = graph_of(tied_step)
    outer = outer_rewrite(graph, 2)  # 3 and 2 sentences
    body, regions, within = inner_regions(replay(graph, registry(), [outer], RULES).graph)
    region = next(c for c in regions if c.kind == "step" and c.length == 3)
    made = replay(graph, registry(), [outer, in_parts(body, region, 2, within)], RULES).graph
    assert_same_numbers(made, graph)


def test_the_gradients_of_a_shared_weight_are_added_one_by_one():
    graph = graph_of(tied_step)
    body = bodies(replay(graph, registry(), [outer_rewrite(graph, 3)], RULES).graph)[1]
    written = [body.values[n.inputs[0]].name for n in body.nodes if n.effects.writes]
    (twice,) = {name for name in written if written.count(name) > 1}
    terms = [n.inputs[1] for n in body.nodes if n.effects.writes and body.values[n.inputs[0]].name == twice]
    makers = [body.nodes[body.producer(term)].op for term in terms]
    assert makers == ["aten.mm.default", "aten.embedding_dense_backward.default"]
