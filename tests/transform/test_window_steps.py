"""Training steps on one image, forward and backward in parts that overlap: the same gradients, in the predicted bytes."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import nn

from neaptide.analysis.axes.windows import Scaled, follow_windows
from neaptide.errors import RewriteError
from neaptide.ops import registry
from neaptide.ops.aten.dialect import CONVOLUTION_GRADIENTS
from neaptide.runtime.steps.capturing import capture
from neaptide.transform.rewrite import apply_rewrite, apply_rule
from neaptide.transform.rules import RULES
from neaptide.transform.rules.fission import windows
from planner.variants.variant_search import choices_of_all
from support.steps import trained
from transform.fission_play import random_inputs, run_measured

HEIGHT = 2
ROWS = 24


def step_of(model, loss_of, shape=(1, 3, ROWS, 4)):
    """The graph of a step that learns from one image."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    step = trained(optimizer, lambda image: loss_of(model(image)))
    return capture(step, (torch.randn(shape),)).steady.graph


def overlapping(graph):
    """What the search would do along the height, if anything."""
    choices = choices_of_all()
    found = choices.after(choices.begun(graph))
    here = [c for c in found if c.regions[0].scales and c.regions[0].origin[1] == HEIGHT]
    return choices, max(here, key=lambda c: len(c.regions[0].members), default=None)


def check(graph, parts):
    """Whole and in parts the step is the same; how many gradients of weights are made in parts."""
    choices, choice = overlapping(graph)
    if choice is None:
        return 0
    inputs = random_inputs(graph)
    expected = run_measured(graph, inputs)
    for count in parts:
        variant = choices.taken(choice, count)
        assert variant is not None, choices.refusals
        assert any(node.regions for node in variant.graph.nodes)
        assert_near(run_measured(variant.graph, inputs), expected)
    made = (choice.begun.graph.nodes[n] for n in choice.regions[0].members)
    return sum(node.op == CONVOLUTION_GRADIENTS and node.args[10][1] for node in made)


def assert_near(found, expected):
    """Equal within what another order of sums may change: terms of a gradient may be far larger than what is left of them."""
    for ours, theirs in zip(found, expected, strict=True):
        scale = max(float(theirs.abs().max()), 1.0)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6 * scale)


def strided():
    """The first convolution skips rows, and nobody asks for the gradient of what it reads."""
    return nn.Sequential(
        nn.Conv2d(3, 3, (5, 3), (2, 1), (4, 1), (2, 1), 3, False),
        nn.ReLU(inplace=True),
        nn.Conv2d(3, 3, (3, 3), 1, (2, 1), (2, 1)),
    )


def grouped():
    return nn.Sequential(
        nn.Conv2d(3, 3, 3, (3, 1), 1),
        nn.GELU(),
        nn.Conv2d(3, 3, (5, 3), 1, (2, 1), groups=3),
        nn.ReLU(),
        nn.Conv2d(3, 3, 3, 1, 1),
    )


@pytest.mark.parametrize(("make", "parts", "reduction"), [(strided, 5, "mean"), (grouped, 7, "sum")])
def test_strides_dilations_and_groups_in_parts(make, parts, reduction):
    torch.manual_seed(0)

    def loss_of(made):
        return nn.functional.mse_loss(made, torch.zeros(made.shape), reduction=reduction)

    model = make()
    graph = step_of(model, loss_of)
    assert check(graph, [parts]) == sum(isinstance(layer, nn.Conv2d) for layer in model)


@pytest.mark.parametrize("last", [nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3, 2, 1), nn.BatchNorm2d(3)])
def test_what_ends_elsewhere_or_needs_all_rows_is_left_outside(last):
    graph = step_of(nn.Sequential(same_height(), nn.ReLU(), last), lambda made: made.square().sum())
    assert check(graph, [2]) < 4


def same_height():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(4, 3, 3, padding=1),
    )


@pytest.mark.parametrize("parts", [2, 5, 24])
def test_all_of_a_step_with_windows_runs_in_parts(parts):
    target = torch.randn(1, 3, ROWS, 4)
    graph = step_of(same_height(), lambda made: nn.functional.mse_loss(made, target))
    assert check(graph, [parts]) == 3


def test_where_most_of_a_step_runs_side_by_side_no_parts_overlap():
    graph = step_of(same_height(), lambda made: made.square().sum(), (4, 3, ROWS, 4))
    assert overlapping(graph)[1] is None


def test_gradients_are_apart_and_keep_their_bits():
    graph = step_of(same_height(), lambda made: made.square().sum())
    made = apply_rule(graph, registry(), RULES["split_convolution_backward"]).edited.graph
    before = [node for node in graph.nodes if node.op == CONVOLUTION_GRADIENTS]
    after = [node for node in made.nodes if node.op == CONVOLUTION_GRADIENTS]
    assert (len(before), len(after)) == (3, 5)  # nobody asks for the gradient of the image
    assert not tuple(RULES["split_convolution_backward"].find(made, registry()))
    inputs = random_inputs(graph)
    for one, other in zip(run_measured(graph, inputs), run_measured(made, inputs), strict=True):
        assert torch.equal(one, other)


def test_a_gradient_of_a_weight_beside_that_of_the_input_would_count_rows_twice():
    graph = step_of(same_height(), lambda made: made.square().sum())
    (image,) = (v for v in graph.inputs if graph.values[v].name == "batch_0")
    found = follow_windows(graph, registry(), {image: Scaled(HEIGHT, Fraction(1))}, range(len(graph.nodes)))
    joint = next(RULES["split_convolution_backward"].find(graph, registry())).nodes
    assert found.members.keys().isdisjoint(joint)
    wanted = windows(graph, [*found.members, joint[0]], parts=2, inputs={image: Scaled(HEIGHT, Fraction(1))})
    with pytest.raises(RewriteError, match="needs the whole axis"):
        apply_rewrite(graph, registry(), wanted, RULES)
