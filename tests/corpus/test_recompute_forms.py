import json

import pytest

from neaptide.errors import UsageError
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.recompute_form import from_json
from neaptide_corpus.recompute_forms import FAMILIES, recompute_form
from neaptide_corpus.recompute_tape import SAVES_INPUTS, SAVES_OUTPUT, RecomputeTape


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("nodes", [1, 60, 500])
def test_instances_are_problems_of_the_size_asked_for(family, nodes):
    form = recompute_form(family, nodes, seed=1)
    step = from_json(json.dumps(form))
    # One more layer has at most so many nodes.
    assert nodes <= step.node_count < nodes + 120
    assert form == recompute_form(family, nodes, seed=1)
    assert {row["phase"] for row in form} == {"fwd", "bwd"}
    assert step.lower_bound_bytes < Evaluator(step).peak or nodes == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_every_seed_has_shapes_of_its_own(family):
    assert len({json.dumps(recompute_form(family, 60, seed)) for seed in range(6)}) > 1


@pytest.mark.parametrize("family", FAMILIES)
def test_forward_comes_first_and_only_gradients_of_weights_stay(family):
    form = recompute_form(family, 200)
    phases = [row["phase"] for row in form]
    assert phases == sorted(phases, reverse=True)
    for row in form:
        assert row["out"] == (row["phase"] == "bwd" and row["name"].endswith(".weight"))
        assert row["moved"] >= row["size"] or row["name"].endswith(".side")


def test_large_instances_grow_with_what_is_asked_for():
    assert 10_000 <= len(recompute_form("transformer", 10_000)) < 10_100


def test_what_the_decoder_reads_waits_through_the_whole_decoder():
    form = recompute_form("encoder_decoder", 300)
    readers = [row for row in form if row["name"] == "key_value"]
    assert len({row["deps"][0] for row in readers}) == 1
    assert len(readers) >= 2


def test_skips_reach_from_the_way_down_to_the_way_up():
    form = recompute_form("skips", 200)
    concats = [(index, row) for index, row in enumerate(form) if row["name"] == "concat"]
    distances = [index - min(row["deps"]) for index, row in concats]
    assert len(distances) == 3
    # The level that is left first is come back to last.
    assert distances == sorted(distances)


def test_gradients_of_a_value_with_two_readers_are_summed():
    tape = RecomputeTape()
    x = tape.op("x", 8, weight=4)
    a = tape.op("a", 8, [x], saves=SAVES_INPUTS)
    b = tape.op("b", 8, [x], saves=SAVES_OUTPUT)
    y = tape.op("y", 8, [a, b])
    rows = tape.finish([y])
    names = [row["name"] for row in rows]
    assert names == ["x", "a", "b", "y", "y.start", "b.input", "a.input", "x.sum", "x.weight"]
    deps = {row["name"]: row["deps"] for row in rows}
    # The sum hands its gradient on; the others read what they saved.
    assert deps["b.input"] == [names.index("y.start"), b]
    assert deps["a.input"] == [names.index("y.start"), x]
    assert deps["x.sum"] == [names.index("b.input"), names.index("a.input")]


def test_what_depends_on_no_parameter_gets_no_gradient():
    tape = RecomputeTape()
    x = tape.op("x", 8)
    y = tape.op("y", 8, [tape.op("z", 8, [x], saves=SAVES_INPUTS)], weight=4, saves=SAVES_INPUTS)
    assert [row["name"] for row in tape.finish([y])] == ["x", "z", "y", "y.start", "y.weight"]


def test_wishes_that_cannot_be_met():
    with pytest.raises(UsageError, match="no family"):
        recompute_form("resnet", 10)
    with pytest.raises(UsageError, match="0 nodes"):
        recompute_form("skips", 0)
