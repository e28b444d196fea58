"""Random graphs: valid, reproducible, and with just the features asked for."""

import pytest

from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.values import Kind
from neaptide.ir.verify import verify
from neaptide_corpus.random_graphs import random_graph

ALL_OFF = dict.fromkeys(("views", "in_place", "multi_output", "shape_only", "resident", "rng"), False)


@pytest.mark.parametrize("seed", range(20))
def test_the_same_seed_gives_the_same_graph(seed):
    assert random_graph(seed, 15) == random_graph(seed, 15)
    verify(random_graph(seed, 15))
    assert len(random_graph(seed, 15).nodes) == 15


def test_seeds_differ():
    assert len({fingerprint(random_graph(seed, 10)) for seed in range(50)}) == 50


def test_graphs_do_not_change_between_versions():
    # Recorded results name graphs by seed: a change of the generator changes them all.
    assert (
        fingerprint(random_graph(0, 30)) == "197e72f9db7f3fdd0c3ab6e61600837e34026aa473c62e49ee0fabf5cbabce91"
    )


FEATURES = {
    "views": lambda g, n: not n.effects.writes and bool(n.outputs) and not g.created_storages(n),
    "in_place": lambda g, n: bool(n.effects.writes),
    "multi_output": lambda g, n: len(n.outputs) > 1,
    "shape_only": lambda g, n: len({g.values[v].storage for v in n.inputs}) > len(n.effects.reads) > 0,
    "rng": lambda g, n: n.effects.rng is not None,
}


@pytest.mark.parametrize("feature", FEATURES)
def test_features_are_there_when_asked_for_and_not_otherwise(feature):
    has = FEATURES[feature]
    without = [random_graph(seed, 20, **ALL_OFF) for seed in range(10)]
    with_it = [random_graph(seed, 20, **{**ALL_OFF, feature: True}) for seed in range(10)]
    assert not any(has(g, n) for g in without for n in g.nodes)
    assert any(has(g, n) for g in with_it for n in g.nodes)


def test_resident_adds_parameters():
    kinds = {s.kind for seed in range(5) for s in random_graph(seed, 5).storages}
    assert Kind.PARAMETER in kinds
    assert all(len(random_graph(seed, 5, resident=False).inputs) == 1 for seed in range(5))


def test_no_nodes_at_all():
    assert random_graph(0, 0).nodes == ()
