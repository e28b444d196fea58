"""Graphs and edits of `order_edits`: one set to tune with, another, without anything in common, to report."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from neaptide.schedule.order.from_graph import order_problem
from neaptide.schedule.order.neutral import from_mapping
from neaptide.schedule.order.problem import OrderProblem
from neaptide_corpus.conv_backward import Update
from neaptide_corpus.conv_forms import ConvForm, FeatureMap
from neaptide_corpus.nas_networks import GENOTYPES, MacroArchitecture, cell_network, nas_network
from neaptide_corpus.order_forms import OrderForm
from neaptide_corpus.rand_wire import rand_wire
from neaptide_corpus.random_orders import layered, local, random_order
from neaptide_corpus.training_networks import (
    Network,
    darts_cells,
    hrnet_w18_small,
    random_wiring,
    training_step,
    vgg16,
)
from neaptide_corpus.training_steps import conv_step, transformer_step
from neaptide_peers.incremental.edit import Edit
from order_problem_edits import fission, fuse, recompute, split

EDIT_KINDS: Final = ("rewrite", "recompute", "fission")
_TRIES: Final = 400  # of places, until one takes an edit
_LONGEST_CHAIN: Final = 4


def unet(side: int, width: int = 16, depth: int = 4) -> Network:
    """A U-Net: `depth` halvings, two convolutions on each level, what went down stacked onto what comes up."""

    def twice(net: ConvForm, x: FeatureMap, channels: int) -> FeatureMap:
        for _ in range(2):
            x = net.relu(net.conv(x, channels, kernel=(3, 3)))
        return x

    def build(net: ConvForm) -> FeatureMap:
        x = twice(net, net.image(3, side), width)
        kept = []
        for level in range(1, depth + 1):
            kept.append(x)
            x = twice(net, net.pool(x, "max", kernel=2, stride=2, padding=False), width << level)
        for level in reversed(range(depth)):
            skip = kept.pop()
            up = net.result(
                "upsample", [net.conv(x, width << level)], (width << level, skip.height, skip.width)
            )
            x = twice(net, net.concat([skip, up]), width << level)
        return net.conv(x, 2, norm=False)

    return build


def _cells(genotype: str, side: int, repeats: int, filters: float) -> OrderForm:
    macro = MacroArchitecture(
        side=side, stem_stride=2 if side > 64 else 1, reductions_first=0, repeats=repeats, classes=100
    )
    return cell_network(GENOTYPES[genotype], macro, filters)


def _form(make: Callable[..., OrderForm], *arguments: Any) -> Callable[[], OrderProblem]:
    return lambda: from_mapping(make(*arguments))


def _training(network: Network, batch: int, update: Update) -> Callable[[], OrderProblem]:
    return lambda: from_mapping(training_step(network, batch=batch, update=update))


Makers = Mapping[str, Callable[[], OrderProblem]]

TUNING: Final[Makers] = MappingProxyType(
    {
        "nasnet_imagenet": _form(nas_network, "nasnet_imagenet"),
        "amoebanet_cifar": _form(nas_network, "amoebanet_cifar"),
        "darts_cifar": _form(nas_network, "darts_cifar"),
        "pnas_imagenet": _form(nas_network, "pnas_imagenet"),
        "rand_wire_1": _form(rand_wire, 1),
        "rand_wire_2": _form(rand_wire, 2),
        "hrnet_b1_224": _training(hrnet_w18_small(224), 1, Update.NONE),
        "darts_train_b8_32": _training(darts_cells(32), 8, Update.IN_PLACE),
        "local_300_2": _form(local, 300, 2),
        "local_300_3": _form(local, 300, 3),
        "layered_300_2": _form(layered, 300, 2),
    }
)
"""What constants were chosen with, by edits of seeds from 0 on."""

REPORTED: Final[Makers] = MappingProxyType(
    {
        "nasnet_cifar": _form(nas_network, "nasnet_cifar"),
        "amoebanet_imagenet": _form(nas_network, "amoebanet_imagenet"),
        "darts_imagenet": _form(nas_network, "darts_imagenet"),
        "pnas_cifar": _form(nas_network, "pnas_cifar"),
        "nasnet_160_x2": _form(_cells, "nasnet", 160, 2, 20),
        "amoebanet_32_x3": _form(_cells, "amoebanet", 32, 3, 24),
        "darts_96_x3": _form(_cells, "darts", 96, 3, 16),
        "pnas_48_x2": _form(_cells, "pnas", 48, 2, 40),
        "rand_wire_11": _form(rand_wire, 11),
        "rand_wire_12": _form(rand_wire, 12),
        "rand_wire_13": _form(rand_wire, 13),
        "vgg16_b4_64": _training(vgg16(64), 4, Update.IN_PLACE),
        "unet_b2_128": _training(unet(128), 2, Update.NONE),
        "unet_b2_128_sgd": _training(unet(128), 2, Update.FUNCTIONAL),
        "hrnet_b2_128_sgd": _training(hrnet_w18_small(128), 2, Update.FUNCTIONAL),
        "rand_wire_train_7": _training(random_wiring(64, 7), 1, Update.IN_PLACE),
        "transformer_12_adamw": lambda: order_problem(transformer_step(layers=12).graph),
        "conv_step_24_sgd": lambda: order_problem(conv_step(blocks=24).graph),
        "random_150_41": _form(random_order, 41, 150),
        "random_250_42": _form(random_order, 42, 250),
        "local_400_101": _form(local, 400, 101),
        "local_400_102": _form(local, 400, 102),
        "layered_400_103": _form(layered, 400, 103),
        "layered_400_104": _form(layered, 400, 104),
    }
)
"""What is reported, by edits of seeds from 1000 on."""

FIRST_SEED: Final = MappingProxyType({"tuning": 0, "reported": 1000})


def random_edit(problem: OrderProblem, kind: str, seed: int) -> Edit | None:
    """An edit somewhere in a problem; None where nothing takes one. The same seed gives the same edit.

    Args:
        problem: before.
        kind: of `EDIT_KINDS`.
        seed: of the place, and of how an op is rewritten.
    """
    rng = random.Random(f"{kind} {seed}")
    if not problem.storages:
        return None
    for _ in range(_TRIES):
        found = _EDITS[kind](problem, rng)
        if found is not None:
            return found
    return None


def _rewritten(problem: OrderProblem, rng: random.Random) -> Edit | None:
    if rng.random() < 0.5:
        return fuse(problem, rng.randrange(len(problem.storages)))
    return split(problem, rng.randrange(problem.op_count))


def _recomputed(problem: OrderProblem, rng: random.Random) -> Edit | None:
    return recompute(problem, rng.randrange(len(problem.storages)))


def _in_parts(problem: OrderProblem, rng: random.Random) -> Edit | None:
    chain = [rng.randrange(problem.op_count)]
    for _ in range(rng.randrange(_LONGEST_CHAIN)):
        writes = problem.ops[chain[-1]].writes
        accessors = problem.accessors[writes[0]] if len(writes) == 1 else ()
        if len(accessors) != 2 or accessors[0] != chain[-1]:
            break
        chain.append(accessors[1])
    return fission(problem, chain, rng.choice((2, 3, 4)))


_EDITS: Final = MappingProxyType({"rewrite": _rewritten, "recompute": _recomputed, "fission": _in_parts})
