"""Random ordering problems: valid, reproducible, of the family that their name says."""

import pytest

from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.neutral import from_mapping, to_mapping
from neaptide_corpus.order_forms import FormBuilder
from neaptide_corpus.random_orders import gnp, layered, local, random_order, repeated_blocks, wide
from order_play import peak_bytes

FAMILIES = {"gnp": gnp, "local": local, "layered": layered, "wide": wide, "repeated_blocks": repeated_blocks}


def edges(form):
    makers = {s: i for i, op in enumerate(form["ops"]) for s in op["writes"]}
    return [(makers[s], i) for i, op in enumerate(form["ops"]) for s in op["reads"]]


@pytest.mark.parametrize("family", FAMILIES)
def test_families_are_reproducible_and_valid(family):
    form = FAMILIES[family](100, 3)
    assert form == FAMILIES[family](100, 3)
    assert (
        form["ops"] != FAMILIES[family](100, 4)["ops"]
        or form["storages"] != FAMILIES[family](100, 4)["storages"]
    )
    assert len(form["ops"]) == 100
    assert evaluate_order(from_mapping(form), range(100)).peak_bytes == peak_bytes(form)
    read = {s for op in form["ops"] for s in op["reads"]}
    assert all((s["id"] in read) != s.get("output", False) for s in form["storages"])


def test_local_operands_are_near():
    assert all(0 < j - i <= 5 for i, j in edges(local(200, 0, reach=5)))


def test_layers_read_the_layer_before():
    assert {j // 4 - i // 4 for i, j in edges(layered(100, 0, width=4))} == {1}


def test_gnp_has_about_the_degree_asked_for():
    form = gnp(400, 0, degree=4.0)
    assert 1.8 * 400 < len(edges(form)) < 2.2 * 400


def test_wide_problems_hold_many_tensors_but_end_with_few():
    form = wide(2000, 0)
    assert peak_bytes(form) > 100 * 50
    assert sum(s.get("output", False) for s in form["storages"]) < 20


def test_blocks_repeat():
    form = repeated_blocks(500, 0, block=50)
    shape = [
        [(i % 50, j % 50) for i, j in edges(form) if j // 50 == block and i // 50 == block]
        for block in range(10)
    ]
    assert shape.count(shape[0]) == 10
    assert [(i, j) for i, j in edges(form) if i // 50 != j // 50] == [(k - 1, k) for k in range(50, 500, 50)]


@pytest.mark.parametrize("seed", range(40))
def test_random_problems_round_trip_and_play(seed):
    form = random_order(seed, 10)
    assert form == random_order(seed, 10)
    problem = from_mapping(form)
    assert to_mapping(problem) == form
    assert evaluate_order(problem, range(10)).peak_bytes == peak_bytes(form)


@pytest.mark.parametrize(
    ("feature", "shows"),
    [
        ("workspace", lambda form: any(op.get("workspace") for op in form["ops"])),
        ("in_place", lambda form: any(op.get("in_place") for op in form["ops"])),
        ("control", lambda form: any(op.get("after") for op in form["ops"])),
        ("resident", lambda form: any(s.get("resident") for s in form["storages"])),
        ("mutation", lambda form: any(set(op["reads"]) & set(op["writes"]) for op in form["ops"])),
        (
            "multi_output",
            lambda form: any(len(set(op["writes"]) - set(op["reads"])) > 1 for op in form["ops"]),
        ),
    ],
)
def test_features_are_there_only_if_asked_for(feature, shows):
    assert any(shows(random_order(seed, 12)) for seed in range(20))
    assert not any(shows(random_order(seed, 12, **{feature: False})) for seed in range(20))


def test_the_builder_writes_only_what_is_not_default():
    form = FormBuilder()
    read = form.storage(4)
    form.op("plain", reads=[read, read])
    assert form.finish() == {
        "format": "neaptide.order/1",
        "storages": [{"id": "t0", "nbytes": 4}],
        "ops": [{"id": "plain_0", "reads": ["t0"], "writes": []}],
    }
