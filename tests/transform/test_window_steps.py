"""Training steps on one image, forward and backward in parts that overlap: the same gradients, in the predicted bytes."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from example_counts import examples
from fission_play import assert_close, random_inputs, run_measured
from neaptide.analysis.axes.windows import Scaled, follow_windows
from neaptide.errors import RewriteError
from neaptide.ops import registry
from neaptide.ops.convolutions import CONVOLUTION_GRADIENTS
from neaptide.planner.variants.choices import Choices
from neaptide.runtime.capturing import capture
from neaptide.transform.rewrite import Rewrite, apply_rewrite
from neaptide.transform.rules import RULES
from neaptide.transform.rules.gradients_apart import gradients_apart
from neaptide.transform.rules.windows import windows

HEIGHT = 2
ROWS = 24


def step_of(model, loss_of, shape=(1, 3, ROWS, 4)):
    """The graph of a step that learns from one image."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(image):
        optimizer.zero_grad()
        loss = loss_of(model(image))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return capture(step, (torch.randn(shape),)).steady.graph


def overlapping(graph):
    """What the search would do along the height, if anything."""
    choices = Choices(registry(), lambda _: None)
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
        if variant is not None:
            assert any(node.regions for node in variant.graph.nodes)
            assert_close(run_measured(variant.graph, inputs), expected)
    made = (choice.begun.graph.nodes[n] for n in choice.regions[0].members)
    return sum(node.op == CONVOLUTION_GRADIENTS and node.args[10][1] for node in made)


@st.composite
def layers(draw, last):
    kernel, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    # Such that the next layer is as high, or higher, or lower.
    padding = draw(st.integers(0, dilation * (kernel - 1) + 1))
    stride = draw(st.sampled_from((1, 1, 1, 2)))
    groups = draw(st.sampled_from((1, 3)))
    convolution = nn.Conv2d(
        3, 3, (kernel, 3), (stride, 1), (padding, 1), (dilation, 1), groups, draw(st.booleans())
    )
    behind = draw(st.sampled_from(("relu", "relu", "gelu", "none")))
    made = {"relu": nn.ReLU(inplace=draw(st.booleans())), "gelu": nn.GELU(), "none": nn.Identity()}
    return nn.Sequential(convolution, nn.Identity() if last else made[behind])


@given(st.data(), st.integers(1, 3))
@settings(max_examples=examples(6))
def test_any_convolutions_in_any_parts(data, depth):
    torch.manual_seed(0)
    model = nn.Sequential(*(data.draw(layers(k == depth - 1)) for k in range(depth)))
    mean = data.draw(st.booleans())
    graph = step_of(model, lambda made: made.square().mean() if mean else made.square().sum())
    check(graph, data.draw(st.sets(st.integers(2, 9), min_size=1, max_size=2)))


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
    made = apply_rewrite(graph, registry(), gradients_apart(graph), RULES).graph
    before = [node for node in graph.nodes if node.op == CONVOLUTION_GRADIENTS]
    after = [node for node in made.nodes if node.op == CONVOLUTION_GRADIENTS]
    assert (len(before), len(after)) == (3, 5)  # nobody asks for the gradient of the image
    assert gradients_apart(made) is None
    inputs = random_inputs(graph)
    for one, other in zip(run_measured(graph, inputs), run_measured(made, inputs), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("nodes", [(0,), (2, 2), ()])
def test_only_joint_gradients_are_put_apart(nodes):
    graph = step_of(same_height(), lambda made: made.square().sum())
    with pytest.raises(RewriteError):
        apply_rewrite(graph, registry(), Rewrite("gradients_apart", nodes), RULES)


def test_a_gradient_of_a_weight_beside_that_of_the_input_would_count_rows_twice():
    graph = step_of(same_height(), lambda made: made.square().sum())
    (image,) = (v for v in graph.inputs if graph.values[v].name == "batch_0")
    found = follow_windows(graph, registry(), {image: Scaled(HEIGHT, Fraction(1))}, range(len(graph.nodes)))
    joint = gradients_apart(graph).nodes
    assert found.members.keys().isdisjoint(joint)
    wanted = windows(graph, [*found.members, joint[0]], parts=2, inputs={image: Scaled(HEIGHT, Fraction(1))})
    with pytest.raises(RewriteError, match="needs the whole axis"):
        apply_rewrite(graph, registry(), wanted, RULES)
