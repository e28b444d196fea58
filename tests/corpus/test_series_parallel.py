"""Trees, series-parallel graphs and pumpkins: of the structure that they promise."""

import pytest

from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.neutral import from_mapping
from neaptide_corpus.series_parallel import Buffers, in_tree, out_tree, pumpkin, series_parallel
from order_play import peak_bytes


def edges(form):
    makers = {s: i for i, op in enumerate(form["ops"]) for s in op["writes"]}
    return [(makers[s], i) for i, op in enumerate(form["ops"]) for s in op["reads"]]


def degrees(form, end):
    found = [0] * len(form["ops"])
    for edge in edges(form):
        found[edge[end]] += 1
    return found


def is_series_parallel(form):
    """Whether series and parallel reductions leave one edge."""
    left = dict.fromkeys(edges(form), 1)
    assert len(left) == len(edges(form))
    terminals = {0, len(form["ops"]) - 1}
    while True:
        for node in {n for edge in left for n in edge} - terminals:
            into = [edge for edge in left if edge[1] == node]
            out = [edge for edge in left if edge[0] == node]
            if len(into) == len(out) == 1:
                del left[into[0]], left[out[0]]
                left[into[0][0], out[0][1]] = 1
                break
        else:
            return list(left) == [(0, len(form["ops"]) - 1)]


@pytest.mark.parametrize("buffers", Buffers)
@pytest.mark.parametrize("seed", range(5))
def test_series_parallel_graphs_reduce_to_one_edge(seed, buffers):
    form = series_parallel(40, 4, seed, buffers=buffers)
    assert form == series_parallel(40, 4, seed, buffers=buffers)
    assert len(form["ops"]) == 40
    assert is_series_parallel(form)
    assert max(degrees(form, 0)) <= 4
    assert evaluate_order(from_mapping(form), range(40)).peak_bytes == peak_bytes(form)


@pytest.mark.parametrize("degree", [2, 3, 5, 8])
def test_large_graphs_reach_the_out_degree(degree):
    assert max(degrees(series_parallel(1000, degree, 1), 0)) == degree


def test_buffers_per_edge_have_one_reader_each():
    form = series_parallel(60, 4, 0, buffers=Buffers.PER_EDGE)
    read = [s for op in form["ops"] for s in op["reads"]]
    assert len(read) == len(set(read)) == len(form["storages"]) - 1
    shared = series_parallel(60, 4, 0)
    assert edges(shared) == edges(form)
    assert len(shared["storages"]) == 60


@pytest.mark.parametrize("seed", range(5))
def test_trees_have_one_root(seed):
    inward, outward = in_tree(30, seed), out_tree(30, seed, out_degree=2)
    assert sorted(set(degrees(inward, 0))) == [0, 1]
    assert degrees(inward, 0)[-1] == 0
    assert sorted(set(degrees(outward, 1))) == [0, 1]
    assert max(degrees(outward, 0)) <= 2
    outputs = sum(s.get("output", False) for s in outward["storages"])
    assert outputs == degrees(outward, 0).count(0)


def test_pumpkins_have_chains_between_two_ends():
    form = pumpkin(5, 40, 0)
    out, into = degrees(form, 0), degrees(form, 1)
    assert (out[0], into[-1]) == (5, 5)
    assert set(out[1:-1]) == set(into[1:-1]) == {1}
    assert len(form["ops"]) == 40
