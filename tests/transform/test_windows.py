"""Regions whose windows overlap, in parts: the same numbers, in the bytes that are predicted, whatever the windows are."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from neaptide.analysis.axes.windows import Scaled, follow_windows
from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import RewriteError
from neaptide.ir.schedule import Schedule
from neaptide.ir.text.parser import parse_graph
from neaptide.ir.text.writer import print_graph
from neaptide.ops import registry
from neaptide.runtime.steps.capturing import capture
from neaptide.transform.rewrite import Rewrite, replay
from neaptide.transform.rules import RULES
from neaptide.transform.rules.fission import windows
from support.drawn import examples
from support.together import together
from transform.fission_play import assert_close, random_inputs, run_measured

HEIGHT = 2


def captured(model, *shape):
    """The graph of a forward on one image, and the image among its inputs."""

    def step(image):
        with torch.no_grad():
            return model.eval()(image)

    graph = capture(step, (torch.zeros(shape),)).steady.graph
    return graph, next(v for v in graph.inputs if graph.values[v].name == "batch_0")


def operands(graph):
    """Random ones; variances are positive."""
    found = random_inputs(graph)
    return [
        item.abs() + 0.1 if graph.values[number].name.endswith("running_var") else item
        for number, item in zip(graph.inputs, found, strict=True)
    ]


def in_parts(graph, image, parts, nodes=None):
    """The graph with all that follows from the image in parts along its height."""
    seeds = {image: Scaled(HEIGHT, Fraction(1))}
    followed = follow_windows(graph, registry(), seeds, range(len(graph.nodes)))
    members = list(followed.members) if nodes is None else nodes
    return replay(graph, registry(), [windows(graph, members, parts=parts, inputs=seeds)], RULES).graph


def check_parts(model, shape, parts):
    """Whole and in parts it is the same; how many were run."""
    graph, image = captured(model, *shape)
    inputs = operands(graph)
    expected = run_measured(graph, inputs)
    run = 0
    for count in parts:
        edited = in_parts(graph, image, count)
        assert_close(run_measured(edited, inputs), expected)
        run += any(node.regions for node in edited.nodes)
    return run


KERNELS = st.integers(1, 4)
LAYERS = st.sampled_from(("conv", "conv", "conv", "max", "mean", "norm", "relu", "up", "pad", "silu"))


@st.composite
def layers(draw, channels):
    kind = draw(LAYERS)
    kernel, stride = draw(KERNELS), draw(st.integers(1, 3))
    if kind == "conv":
        groups = draw(st.sampled_from((1, channels)))
        dilation, padding = draw(st.integers(1, 3)), draw(st.integers(0, 3))
        bias = draw(st.booleans())
        return nn.Conv2d(
            channels, channels, (kernel, 1), (stride, 1), (padding, 0), (dilation, 1), groups, bias
        )
    if kind == "max":
        padding = draw(st.integers(0, kernel // 2))
        return nn.MaxPool2d((kernel, 1), (stride, 1), (padding, 0), (draw(st.integers(1, 2)), 1))
    if kind == "mean":
        return nn.AvgPool2d((kernel, 1), (stride, 1), (draw(st.integers(0, kernel // 2)), 0))
    if kind == "pad":
        return nn.ConstantPad2d((0, 0, draw(st.integers(0, 3)), draw(st.integers(0, 3))), 0.5)
    made = {
        "norm": lambda: nn.BatchNorm2d(channels),
        "relu": lambda: nn.ReLU(inplace=draw(st.booleans())),
        "up": lambda: nn.Upsample(scale_factor=draw(st.sampled_from((2, 4)))),
        "silu": nn.SiLU,
    }
    return made[kind]()


class Chain(nn.Module):
    """Layers one after another, and what the first makes added where it is as high as what the last but one makes."""

    def __init__(self, parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x):
        first = None
        for part in self.parts:
            x = part(x)
            if first is None:
                first = x.clone()
            elif first.shape == x.shape:
                x = x + first
        return x.sigmoid()


def fits(model, shape):
    """Whether an image is high enough for its windows."""
    try:
        model.eval()(torch.zeros(shape))
    except RuntimeError:
        return False
    return True


REFUSALS = (
    "cannot be split into",
    "no multiple of",
    "nothing of a value",
    "needs the whole axis",
    "overwrites batch_0",
)


def parts_or_reason(graph, image, parts):
    """The graph in parts, or why it is not."""
    try:
        return in_parts(graph, image, parts), ""
    except RewriteError as error:
        return None, error.what


@settings(max_examples=examples(30), deadline=None)
@given(st.data())
def test_any_chain_of_windows_in_any_number_of_parts(data):
    channels = 2
    model = Chain(data.draw(st.lists(layers(channels), min_size=1, max_size=5), label="layers"))
    height = data.draw(st.integers(9, 24), label="height")
    shape = (1, channels, height, 2)
    if not fits(model, shape):
        return
    graph, image = captured(model, *shape)
    inputs = operands(graph)
    parts = data.draw(st.integers(2, height), label="parts")
    edited, reason = parts_or_reason(graph, image, parts)
    if edited is None:
        assert any(known in reason for known in REFUSALS), reason
        return
    assert_close(run_measured(edited, inputs), run_measured(graph, inputs))
    check_schedule(edited, Schedule.program_order(edited), registry())
    assert parse_graph(print_graph(edited)) == edited


class Residual(nn.Module):
    """A block whose shortcut reads fewer rows than its convolutions do."""

    def __init__(self, channels, stride=1):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, stride, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.short = nn.Conv2d(channels, channels, 1, stride)

    def forward(self, x):
        return torch.relu_(self.second(torch.relu(self.first(x))) + self.short(x))


class Hourglass(nn.Module):
    """Down, up, and joined with what was there before."""

    def __init__(self, channels=4):
        super().__init__()
        self.down = nn.Conv2d(3, channels, 3, padding=1)
        self.deep = nn.Conv2d(channels, channels, 3, padding=1)
        self.up = nn.ConvTranspose2d(channels, channels, 2, 2)
        self.out = nn.Conv2d(2 * channels, 3, 3, padding=1)

    def forward(self, x):
        wide = torch.relu(self.down(x))
        deep = torch.relu(self.deep(nn.functional.max_pool2d(wide, 2)))
        return self.out(torch.cat([wide, self.up(deep)], 1))


class TwoFillings(nn.Module):
    """Two windows read the same rows: beyond the edge one sees zeros, the other the least number."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 5, padding=2)

    def forward(self, x):
        y = torch.exp(x) - 3.0
        pooled = nn.functional.max_pool2d(y, 3, 1, 1)
        return self.conv(y) + pooled + nn.functional.avg_pool2d(y, 5, 1, 2)


STEM = (nn.Conv2d(3, 4, 7, 2, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))


@pytest.mark.parametrize(
    ("model", "shape", "parts"),
    [
        (lambda: nn.Sequential(*STEM, Residual(4), Residual(4, 2)), (1, 3, 67, 9), (2, 4, 9)),
        (Hourglass, (1, 3, 32, 8), (3, 16)),
        (TwoFillings, (1, 3, 13, 8), (2, 5, 13)),
        # Seven rows on each side of parts of one row.
        (lambda: nn.Sequential(*(nn.Conv2d(3, 3, 3, padding=1) for _ in range(7))), (2, 3, 12, 5), (5, 12)),
    ],
    ids=["strides", "hourglass", "two fillings", "halo above a part"],
)
def test_networks_in_parts(model, shape, parts):
    assert check_parts(model(), shape, parts) == len(parts)


def test_the_peak_is_lower():
    model = nn.Sequential(*(nn.Conv2d(4, 4, 3, padding=1) for _ in range(4)), nn.Conv2d(4, 1, 1))
    graph, image = captured(model, 1, 4, 64, 16)
    peaks = [
        memory_profile(g, Schedule.program_order(g)).peak_with_workspace_bytes
        for g in (graph, in_parts(graph, image, 8), in_parts(graph, image, 32))
    ]
    persistent = graph.total_bytes(graph.input_storages()).constant_value()
    assert peaks[0] - persistent > 2 * (peaks[1] - persistent) > 2 * (peaks[2] - persistent)


@together(
    ("model", "reason"),
    [
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)), "needs the whole axis"),
        (lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 4, 1)), "needs the whole axis"),
        (lambda: nn.MaxPool2d(3, 2, ceil_mode=True), "needs the whole axis"),
        (lambda: nn.AvgPool2d(3, 1, 1, count_include_pad=False), "needs the whole axis"),
        (lambda: nn.Upsample(scale_factor=3), "needs the whole axis"),
        (lambda: nn.MaxPool2d(3, 1, return_indices=True), "means something within its part only"),
        # The result has an odd number of rows, two of which stand for a row of the smaller image.
        (lambda: nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(3, 3, 2)), "no multiple of 2"),
    ],
)
def test_what_does_not_run_in_parts_is_refused(model, reason):
    graph, image = captured(model(), 1, 3, 12, 12)
    with pytest.raises(RewriteError, match=reason):
        in_parts(graph, image, 2, nodes=range(len(graph.nodes)))


def test_an_image_whose_channels_lie_innermost_is_refused():
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last).eval()

    def step(image):
        with torch.no_grad():
            return model(image)

    image = torch.zeros(1, 3, 12, 12).contiguous(memory_format=torch.channels_last)
    graph = capture(step, (image,)).steady.graph
    number = next(v for v in graph.inputs if graph.values[v].name == "batch_0")
    with pytest.raises(RewriteError, match="is not contiguous, and parts of it overlap"):
        in_parts(graph, number, 2)


@together(
    ("changed", "reason"),
    [
        ({"parts": 1}, "cannot be split into 1 parts"),
        ({"parts": 13}, "cannot be split into 13 parts"),
        ({"inputs": (0, -1, 4, 1, 1)}, "along one that it does not have"),
        ({"inputs": (0, -1, 2, 0, 1)}, "along one that it does not have"),
        ({"inputs": (0, -1, 1, 1, 1)}, "needs the whole axis"),
        ({"inputs": ()}, "does not depend on it"),
    ],
)
def test_settings_from_a_file_are_checked(changed, reason):
    graph, image = captured(nn.Conv2d(3, 3, 3, padding=1), 1, 3, 12, 12)
    good = windows(graph, [0], parts=2, inputs={image: Scaled(HEIGHT, Fraction(1))})
    settings = {**dict(good.settings), **changed}
    with pytest.raises(RewriteError, match=reason):
        replay(
            graph,
            registry(),
            [Rewrite(good.rule, good.nodes, tuple(settings.items()), keeps_bits=False)],
            RULES,
        )
    with pytest.raises(RewriteError, match="it must name nodes"):
        replay(graph, registry(), [Rewrite(good.rule, good.nodes, (("parts", 2),), keeps_bits=False)], RULES)
