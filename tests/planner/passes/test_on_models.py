"""Sequences of passes on generated models: whatever their order, the model computes the same."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("onnxruntime")

from neaptide.frontends.onnx.reader import read_model
from neaptide.ops.onnx import registry
from neaptide.outcome import Limits
from neaptide.planner.passes.graph_space import GraphSpace, PassState
from neaptide.planner.passes.plan_passes import plan_passes
from neaptide.schedule.order.of_model import model_problem
from neaptide.transform.passes import PASSES
from neaptide.transform.rewrite import replay
from neaptide_corpus.onnx_families import FAMILIES, family_model
from support.onnx_cases import graph_of, largest_error, outputs_of
from support.together import together

ROWS = registry()
MOST_NODES = 600


def problem_of(graph):
    return model_problem(graph, ROWS)


def check_sequence(family, seed, draw, length):
    """Passes that are drawn among those that find places, applied one after the other."""
    model = read_model(family_model(family, seed))
    space = GraphSpace(model.graph, ROWS, PASSES, problem_of)
    state, before = space.start, outputs_of(model, model.graph)
    for _ in range(length):
        names = list(space.measure(state).facts)
        following = space.after(state, draw.choice(names)) if names else None
        if following is not None and len(following.graph.nodes) <= MOST_NODES:
            state = following
    assert state.taken
    assert largest_error(before, outputs_of(model, state.graph)) <= 1e-5, state.taken


def test_a_random_sequence_keeps_what_a_model_computes():
    check_sequence("residual", 1, random.Random(0), 3)


TWO_LAYERS = """g (float[1,32,8] x, float[8,64] wa, float[64,8] wb, float[8,64] wc, float[64,8] wd) => (float[1,32,8] y) {
  e = MatMul (x, wa)
  f = Relu (e)
  h = MatMul (f, wb)
  i = Relu (h)
  j = MatMul (i, wc)
  k = Relu (j)
  y = MatMul (k, wd)
}"""


def test_alternatives_that_stand_at_equal_peaks_are_taken_together():
    model = graph_of(TWO_LAYERS)
    space = GraphSpace(model.graph, ROWS, {"mlp_fission_4": PASSES["mlp_fission_4"]}, problem_of)
    before = space.measure(space.start).nbytes
    after = space.after(space.start, "mlp_fission_4")
    assert len(after.rewrites) == 2
    assert space.measure(after).nbytes < before
    assert largest_error(outputs_of(model, model.graph), outputs_of(model, after.graph)) <= 1e-5
    again = replay(model.graph, ROWS, after.rewrites, PASSES).graph
    assert space.key(after) == space.key(PassState(again))


@pytest.mark.slow
@together("family", FAMILIES)
@together("seed", range(8))
def test_random_sequences_keep_what_models_compute(family, seed):
    check_sequence(family, seed, random.Random(f"{family} {seed}"), 4)


@together(
    ("family", "names"),
    [
        ("mobile", ("channel_fission_4", "conv_batch_norm")),
        ("mobile", ("channel_fission_2", "merge_convolutions")),
        ("inception", ("merge_convolutions", "remove_split")),
        ("dense", ("elementwise_before_concat", "concat_before_convolution")),
    ],
)
def test_a_pass_works_on_what_another_made(family, names):
    model = read_model(family_model(family, 0))
    space = GraphSpace(model.graph, ROWS, PASSES, problem_of)
    state = space.start
    for name in names:
        space.measure(state)
        state = space.after(state, name) or state
    assert state.taken[0] == names[0]
    assert largest_error(outputs_of(model, model.graph), outputs_of(model, state.graph)) <= 1e-5


def test_the_learned_search_lowers_a_model_and_its_rewrites_make_the_same_graph():
    model = read_model(family_model("cells", 0))
    outcome = plan_passes(model.graph, ROWS, PASSES, problem_of, limits=Limits(work=4))
    found = outcome.require()
    assert found.measurements == 4
    assert found.peak_bytes < found.baseline_peak_bytes
    again = replay(model.graph, ROWS, found.rewrites, PASSES).graph
    assert largest_error(outputs_of(model, model.graph), outputs_of(model, again)) <= 1e-5
