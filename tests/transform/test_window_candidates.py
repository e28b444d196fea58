"""Regions of a forward that are proposed: where they begin and end, and that each in parts makes the numbers of the whole."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neaptide.ops import registry
from neaptide.planner.variants.choices import ladder
from neaptide.runtime.steps.capturing import capture
from neaptide.transform.fission.spans import stretches
from neaptide.transform.fission.window_candidates import window_candidates
from planner.variants.variant_search import choices_of_all
from transform.fission_play import assert_close, random_inputs, run_measured

HEIGHT, WIDTH = 2, 3


class Pictures(nn.Module):
    """Wide, narrow, and then one number for each class."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(4),
        )
        self.deep = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(2, 16), nn.ReLU())
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.deep(self.wide(x)).mean((2, 3)))


@cache
def forward_of(name):
    torch.manual_seed(0)
    models = {
        "pictures": (Pictures, (1, 3, 32, 24)),
        "plain": (lambda: nn.Sequential(*(nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))), (1, 4, 32, 8)),
    }
    make, shape = models[name]
    model = make().eval()

    def step(image):
        with torch.no_grad():
            return model(image)

    return capture(step, (torch.zeros(shape),)).steady.graph


def test_regions_end_where_the_whole_axis_is_needed():
    graph = forward_of("pictures")
    found = window_candidates(graph, registry())
    assert {made.origin for made in found} == {("batch_0", HEIGHT), ("batch_0", WIDTH)}
    norm = next(node.id for node in graph.nodes if "group_norm" in node.op)
    assert all(max(made.members) < norm for made in found)
    longest = {made.origin[1]: made for made in found if made.length in (8, 6)}
    # Four rows of the image for one after the pool; its convolution reads one more on each side.
    image = next(v for v in graph.inputs if graph.values[v].name == "batch_0")
    assert {dim: made.scales[image] for dim, made in longest.items()} == {HEIGHT: 4, WIDTH: 4}


@pytest.mark.parametrize("name", ["pictures", "plain"])
def test_every_choice_in_parts_makes_the_numbers_of_the_whole(name):
    graph = forward_of(name)
    choices = choices_of_all()
    begun = choices.begun(graph)
    inputs = random_inputs(graph)
    expected = run_measured(graph, inputs)
    kinds = set()
    for choice in choices.after(begun):
        parts = ladder(choice.length)[len(ladder(choice.length)) // 2]
        variant = choices.taken(choice, parts)
        assert variant is not None, choices.refusals
        assert_close(run_measured(variant.graph, inputs), expected)
        kinds.add(variant.rewrites[-1].rule)
    assert "windows" in kinds


def test_the_widest_place_lies_in_every_stretch():
    graph = forward_of("pictures")
    spans = stretches(graph)
    assert spans[0].end - spans[0].start == len(graph.nodes)
    wide = next(node.id for node in graph.nodes if "relu" in node.op)
    assert all(span.start <= wide < span.end for span in spans)
    assert len(spans) > 1


def test_a_training_step_has_no_stretches_and_runs_in_parts_as_a_whole():
    model = nn.Conv2d(3, 3, 3)

    def step(image):
        loss = F.relu(model(image)).sum()
        loss.backward()
        return loss.detach()

    graph = capture(step, (torch.zeros(1, 3, 8, 8),)).steady.graph
    assert not stretches(graph)
    made, *_ = window_candidates(graph, registry())
    assert (made.kind, made.origin, made.length) == ("step", ("batch_0", HEIGHT), 6)
