"""Recorded problems and networks: each generator makes what it made before, which is legal, and as large as published."""

import hashlib
import json
from itertools import combinations
from pathlib import Path

import pytest

from corpus.order_play import least_peak, operand_post_order, peak_bytes
from neaptide.analysis.legality.schedule import check_schedule
from neaptide.errors import UsageError
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.schedule import Schedule
from neaptide.ir.verify import verify
from neaptide.layout.bounds import arena_lower_bound, bytes_live_at
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.neutral import from_mapping, to_mapping
from neaptide.schedule.recompute_form import from_json
from neaptide_corpus import layouts, pebbling, random_orders, recompute_forms, series_parallel
from neaptide_corpus.conv_forms import CAPTURED, COMPILED
from neaptide_corpus.nas_networks import NAS_NETWORKS, Genotype, MacroArchitecture, cell_network, nas_network
from neaptide_corpus.nas_networks_large import LARGE_NETWORKS
from neaptide_corpus.rand_wire import rand_wire
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.text_lengths import LONGEST, batches_of_tokens
from neaptide_corpus.three_partition import hard_out_tree, hard_pumpkin, three_partition_numbers
from neaptide_corpus.training_networks import TRAINING_STEPS, Update, hrnet_w18_small, training_step, vgg16
from neaptide_corpus.training_steps import conv_step, transformer_step
from support.together import together

MIB = 2**20
FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "instances" / "order"
LAYOUTS = ("random_layout", "perfect", "staggered", "nested", "equal_sizes", "training_shaped", "pipelined")
ORDERS = ("gnp", "local", "layered", "wide", "repeated_blocks")

# What generators make, by a part of its checksum: recorded results name instances by family and seed.
MADE = {
    **{f"layout {name}": lambda name=name: getattr(layouts, name)(60, 3) for name in LAYOUTS},
    **{f"order {name}": lambda name=name: getattr(random_orders, name)(100, 3) for name in ORDERS},
    **{
        f"recompute {name}": lambda name=name: recompute_forms.recompute_form(name, 60, 1)
        for name in recompute_forms.FAMILIES
    },
    **{
        f"series-parallel {kind}": lambda kind=kind: series_parallel.series_parallel(40, 4, 1, buffers=kind)
        for kind in series_parallel.Buffers
    },
    **{f"network {name}": lambda name=name: nas_network(name) for name in NAS_NETWORKS},
    **{
        f"large {name} {how}": lambda name=name, how=how: LARGE_NETWORKS[name](how)
        for name in LARGE_NETWORKS
        for how in (CAPTURED, COMPILED)
    },
    **{
        f"trained vgg16 {how}": lambda how=how: training_step(vgg16(32), batch=2, update=how)
        for how in Update
    },
    "in tree": lambda: series_parallel.in_tree(30, 1),
    "out tree": lambda: series_parallel.out_tree(30, 1, out_degree=2),
    "pumpkin": lambda: series_parallel.pumpkin(5, 40, 0),
    "wired": lambda: rand_wire(0),
    "wired, views copied": lambda: rand_wire(0, views_copy=True),
    "random order": lambda: random_orders.random_order(1, 12),
    "pebbling": lambda: pebbling.order_form(pebbling.random_game(1, 6)),
    "triples": lambda: [three_partition_numbers(3, 1), hard_out_tree([12, 12, 12, 12, 16, 16]).form],
    "graph": lambda: fingerprint(random_graph(0, 30)),
    "texts": lambda: [list(map(int, batch)) for batch in batches_of_tokens(5, 3, 7)],
}
CHECKSUMS = json.loads((Path(__file__).parent / "checksums.json").read_text())


def checksum(made):
    return hashlib.sha256(json.dumps(made, sort_keys=True, default=str).encode()).hexdigest()[:16]


@together("name", MADE)
def test_a_generator_makes_what_it_made_before(name):
    assert checksum(MADE[name]()) == CHECKSUMS[name]


@together(
    "name",
    [
        name
        for name in MADE
        if name.startswith(
            (
                "order",
                "series",
                "network",
                "large",
                "trained",
                "in ",
                "out ",
                "pumpkin",
                "wired",
                "random order",
                "pebbling",
            )
        )
    ],
)
def test_ordering_problems_are_legal_and_play_alike(name):
    form = MADE[name]()
    problem = from_mapping(form)
    assert to_mapping(problem)["ops"] == form["ops"]
    assert evaluate_order(problem, range(len(form["ops"]))).peak_bytes == peak_bytes(form)


@together("name", LAYOUTS)
def test_buffers_are_a_problem_and_rectangles_are_full(name):
    rows = getattr(layouts, name)(60, 1)
    problem = LayoutProblem(tuple(Buffer(**row._asdict()) for row in rows))
    assert rows != getattr(layouts, name)(60, 2)
    if name in {"perfect", "staggered"}:
        rows = getattr(layouts, name)(60, 1, steps=50, arena_bytes=4096)
        problem = LayoutProblem(tuple(Buffer(**row._asdict()) for row in rows))
        assert set(bytes_live_at(problem)[1][:-1].tolist()) == {4096}
        assert arena_lower_bound(problem) == 4096


@together("family", recompute_forms.FAMILIES)
@together("nodes", [1, 60, 500])
def test_recompute_instances_are_problems_of_the_size_asked_for(family, nodes):
    form = recompute_forms.recompute_form(family, nodes, seed=1)
    step = from_json(json.dumps(form))
    assert nodes <= step.node_count < nodes + 120  # one more layer has at most so many
    phases = [row["phase"] for row in form]
    assert phases == sorted(phases, reverse=True)
    assert step.lower_bound_bytes < Evaluator(step).peak or nodes == 1
    for row in form:
        assert row["out"] == (row["phase"] == "bwd" and row["name"].endswith(".weight"))


@together("seed", range(10))
def test_graphs_are_legal_and_have_the_features_asked_for(seed):
    verify(random_graph(seed, 15))
    off = dict.fromkeys(("views", "in_place", "multi_output", "shape_only", "persistent", "rng"), False)
    plain = random_graph(seed, 20, **off)
    assert len(plain.nodes) == 20
    assert not any(n.effects.writes or n.effects.rng or len(n.outputs) > 1 for n in plain.nodes)
    drawn = random_graph(seed, 40, **{**off, "rng": True, "in_place": True})
    assert any(n.effects.writes for n in drawn.nodes)
    assert any(n.effects.rng is not None for n in drawn.nodes)


@together(
    "made",
    [
        lambda: transformer_step(layers=2, dropout=True, clip=True, optimizer="sgd"),
        lambda: conv_step(blocks=2, optimizer="adamw"),
    ],
)
def test_training_steps_are_legal_and_every_parameter_is_updated(made):
    made = made()
    check_schedule(made.graph, Schedule.program_order(made.graph), made.registry)
    parameters = {s.id for s in made.graph.storages if s.kind == "parameter"}
    written = [a.storage for n in made.graph.nodes for a in n.effects.writes if a.storage in parameters]
    assert set(written) == parameters
    assert all(node.op in made.registry for node in made.graph.nodes)


# Operations, and whole KB of the post-order from the results, as HMCOS (DAC 2022) has them on its graphs.
HMCOS = {
    "nasnet_cifar": (879, 2560),
    "nasnet_imagenet": (723, 5185),
    "amoebanet_cifar": (783, 1791),
    "amoebanet_imagenet": (651, 5038),
    "darts_cifar": (801, 2376),
    "darts_imagenet": (591, 5026),
    "pnas_cifar": (1017, 2632),
    "pnas_imagenet": (831, 5001),
}


def test_networks_are_as_large_as_published():
    for name, known in HMCOS.items():
        form = nas_network(name)
        assert (len(form["ops"]), peak_bytes(form, operand_post_order(form)) // 1024) == known
    assert HMCOS.keys() == NAS_NETWORKS.keys()
    # Program order of what PyTorch captures from timm's models, without what picks one of several results.
    for name, ops, mib in (("nasnet_a_large", 1538 - 274, 38.07), ("pnasnet_5_large", 1199 - 245, 41.44)):
        form = LARGE_NETWORKS[name](CAPTURED)
        assert (len(form["ops"]), round(peak_bytes(form) / MIB, 2)) == (ops, mib)
    # New weights, 527.8 MiB, beside the largest scaled gradient, 392 MiB: the peak of a traced step with SGD.
    form = training_step(vgg16(224), batch=1, update=Update.FUNCTIONAL)
    assert round(peak_bytes(form) / MIB, 1) == 919.8
    form = training_step(hrnet_w18_small(64), batch=1, update=Update.NONE)
    weights = sum(s["nbytes"] for s in form["storages"] if s.get("output")) // 4 - 1
    assert weights == 13_187_464 - 3840  # timm's head convolutions have biases in front of their batch norms
    assert all(f"_b{batch}_" in name for name, (_, batch) in TRAINING_STEPS.items())
    assert max(map(max, batches_of_tokens(50, 4, 0, scale=4))) <= LONGEST // 16


def test_the_files_are_what_the_generators_make():
    def read(name):
        return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))

    made = {name: nas_network(name) for name in NAS_NETWORKS}
    made |= {f"rand_wire_{seed}": rand_wire(seed) for seed in range(3)}
    for name, form in made.items():
        assert read(name) == {**form, "name": name}
    index = read("index")
    assert {path.stem for path in FOLDER.glob("*.json")} == {"index", *index}
    for name, how in index.items():
        form = read(name)
        assert (len(form["ops"]), len(form["storages"])) == (how["ops"], how["storages"])


@together("seed", range(12))
def test_orders_are_as_good_as_games(seed):
    game = pebbling.random_game(seed, 3 + seed % 5)
    assert least_peak(pebbling.order_form(game)) == pebbling.pebbling_number(game)


SOLVABLE = [[12, 12, 12, 12, 16, 16], [13, 13, 13, 13, 14, 14]]
UNSOLVABLE = [[11, 11, 11, 15, 15, 17], [11, 13, 13, 13, 15, 15]]


@together("numbers", SOLVABLE + UNSOLVABLE)
@together("gadget", [hard_out_tree, hard_pumpkin])
def test_the_best_peak_says_whether_numbers_fall_into_triples(numbers, gadget):
    solvable = any(2 * sum(triple) == sum(numbers) for triple in combinations(numbers, 3))
    hard = gadget(numbers)
    assert (least_peak(hard.form) <= hard.threshold_bytes) == solvable == (numbers in SOLVABLE)


GAME = {"format": "neaptide.pebbling/1", "vertices": [{"id": "a", "weight": 1}]}
WRONG = ((("identity", 1), ("avg3x3", 1)),)


@together(
    ("call", "told"),
    [
        (lambda: recompute_forms.recompute_form("resnet", 10), "no family"),
        (lambda: recompute_forms.recompute_form("skips", 0), "0 nodes"),
        (lambda: hard_out_tree([10, 10, 30]), "3-PARTITION"),
        (lambda: pebbling.pebbling_number(pebbling.random_game(0, 8)), "7"),
        (lambda: pebbling.from_mapping({**GAME, "format": "other/1"}), "format"),
        (lambda: pebbling.from_mapping({**GAME, "kept": ["x"]}), "does not have: x"),
        (
            lambda: cell_network(
                Genotype(WRONG, (2,), WRONG, (2,), "made up"), MacroArchitecture(4, 1, 0, 0, 5), 1
            ),
            "added",
        ),
    ],
    ids=["family", "nodes", "numbers", "large game", "format", "kept", "network"],
)
def test_what_cannot_be_made_is_refused(call, told):
    with pytest.raises(UsageError, match=told):
        call()
