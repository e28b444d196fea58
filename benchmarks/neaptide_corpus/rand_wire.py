"""RandWire networks (Xie et al., ICCV 2019) as ordering problems: cells wired by Watts-Strogatz graphs.

Wiring and macro architecture are those of the HMCOS evaluation (Wang et al., DAC 2022): three cells of WS(32, 4, 0.75)
with 78, 156 and 312 channels after two strided convolutions. Random numbers come from `random.Random(seed)` alone.
"""

from __future__ import annotations

import random
from typing import Final

from neaptide_corpus.conv_forms import ConvForm, FeatureMap
from neaptide_corpus.order_forms import OrderForm

NODES: Final = 32
NEIGHBOURS: Final = 4
REWIRING: Final = 0.75
CELLS: Final = 3
_CHANNELS: Final = 78
_HEAD_CHANNELS: Final = 1280
_CLASSES: Final = 1000

Edge = tuple[int, int]


def watts_strogatz(nodes: int, neighbours: int, rewiring: float, rng: random.Random) -> list[Edge]:
    """A small-world graph, each edge from the smaller to the larger number: acyclic. Ascending. O(nodes^2).

    A ring where each node is joined to `neighbours` nearest ones; then, node by node, each clockwise edge is moved
    with probability `rewiring` to a node that is not joined yet (Watts and Strogatz, Nature 1998).

    Args:
        nodes: number of nodes, above `neighbours`.
        neighbours: even.
        rewiring: from 0 to 1.
        rng: of all choices.
    """
    joined = [
        {(i + step) % nodes for step in range(-(neighbours // 2), neighbours // 2 + 1)} for i in range(nodes)
    ]
    for node in range(nodes):
        for step in range(1, neighbours // 2 + 1):
            neighbour = (node + step) % nodes
            if rng.random() >= rewiring:
                continue
            free = [
                other for other in range(nodes) if other not in joined[node]
            ]  # a node is joined to itself
            other = rng.choice(free)
            joined[node].discard(neighbour)
            joined[neighbour].discard(node)
            joined[node].add(other)
            joined[other].add(node)
    return [(i, j) for i in range(nodes) for j in range(i + 1, nodes) if j in joined[i]]


def rand_wire(seed: int, *, views_copy: bool = False) -> OrderForm:
    """A RandWire network in the neutral form, batch 1, fp32, batch norm fused.

    A node with several inputs stacks them and takes a weighted sum (a matrix-vector product), then ReLU and a
    separable convolution.

    Args:
        seed: of the wiring.
        views_copy: the views around the stacking are operations that make bytes of their own (and may take over their
            operand's), as in a graph exported without alias analysis; otherwise they are no operations at all.
    """
    net = ConvForm()
    return net.finish(wire_cells(net, seed, views_copy=views_copy))


def wire_cells(net: ConvForm, seed: int, *, views_copy: bool = False, side: int = 224) -> FeatureMap:
    """Append the network of `rand_wire`, for images of `side` pixels, to a form; returns its logits."""
    rng = random.Random(seed)
    x = net.conv(net.image(3, side), _CHANNELS // 2, kernel=(3, 3), stride=2)
    x = net.conv(net.relu(x), _CHANNELS, kernel=(3, 3), stride=2)
    for cell in range(CELLS):
        edges = watts_strogatz(NODES, NEIGHBOURS, REWIRING, rng)
        x = _cell(net, x, _CHANNELS << cell, edges, views_copy=views_copy)
    x = net.conv(x, _HEAD_CHANNELS)
    return net.logits(x, _CLASSES, relu=False)


def _cell(net: ConvForm, x: FeatureMap, channels: int, edges: list[Edge], *, views_copy: bool) -> FeatureMap:
    before: list[list[int]] = [[] for _ in range(NODES)]
    for source, target in edges:
        before[target].append(source)
    made: list[FeatureMap] = []
    for sources in before:
        operand = _weighted_sum(net, [made[i] for i in sources], views_copy=views_copy) if sources else x
        stride = 1 if sources else 2
        made.append(net.separable(net.relu(operand), channels, kernel=3, stride=stride))
    inner = {source for source, _ in edges}
    ends = [made[i] for i in range(NODES) if i not in inner]
    stacked = net.concat([_view(net, end, "unsqueeze") for end in ends] if views_copy else ends)
    return net.result("mean", [stacked], (channels, x.height // 2, x.width // 2))


def _weighted_sum(net: ConvForm, operands: list[FeatureMap], *, views_copy: bool) -> FeatureMap:
    if len(operands) == 1:
        return operands[0]
    shape = (operands[0].channels, operands[0].height, operands[0].width)
    if not views_copy:
        return net.result("matvec", [net.concat(operands)], shape)
    stacked = net.concat([_view(net, operand, "unsqueeze") for operand in operands])
    return _view(net, net.result("matvec", [stacked], shape), "squeeze")


def _view(net: ConvForm, x: FeatureMap, kind: str) -> FeatureMap:
    return net.result(kind, [x], (x.channels, x.height, x.width), elementwise=True)
