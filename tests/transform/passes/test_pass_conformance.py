"""What `transform.rewrite.Rule` promises, of every pass by name: on every model of the cases, and of rewrites by chance."""

from __future__ import annotations

import copy
import random
from functools import cache

import pytest

from neaptide.errors import RewriteError
from neaptide.ops.onnx import registry
from neaptide.transform.passes import PASSES
from neaptide.transform.rewrite import Rewrite, apply_rewrite
from support.onnx_cases import graph_of, largest_error, outputs_of
from support.together import together
from transform.passes.test_passes import BLOCK, CASES, JOINED, MLP, POOLED, RESIDUAL

TEXTS = (*dict.fromkeys(text for _, text, _ in CASES), BLOCK, POOLED, JOINED, MLP, RESIDUAL)
TOLERANCE = 1e-5


@cache
def models():
    """Each model with its results."""
    return [(model := graph_of(text), outputs_of(model, model.graph)) for text in TEXTS]


def check_results(model, before, graph):
    assert largest_error(before, outputs_of(model, graph)) <= TOLERANCE


@together("name", PASSES)
def test_all_that_is_found_may_be_done_and_the_graph_stays_as_it_is(name):
    rule, places = PASSES[name], 0
    for model, before in models():
        whole = copy.deepcopy(model.graph)
        found = list(rule.find(model.graph, registry()))
        assert found == list(rule.find(model.graph, registry()))
        for rewrite in found:
            assert (rewrite.rule, rewrite.keeps_bits) == (name, rule.keeps_bits)
            graph = apply_rewrite(model.graph, registry(), rewrite, PASSES).graph
            assert graph != whole
        places += len(found)
        if found:
            check_results(model, before, graph)
        assert model.graph == whole
    assert places


@together("name", PASSES)
def test_a_rewrite_named_by_chance_is_refused_or_harmless(name):
    for number, (model, before) in enumerate(models()):
        draw = random.Random(f"{name} {number}")
        count = len(model.graph.nodes)
        for _ in range(4):
            nodes = tuple(sorted(draw.sample(range(count + 1), min(draw.randint(0, 3), count))))
            rewrite = Rewrite(name, nodes, keeps_bits=PASSES[name].keeps_bits)
            try:
                graph = apply_rewrite(model.graph, registry(), rewrite, PASSES).graph
            except RewriteError:
                continue
            check_results(model, before, graph)
        unknown = Rewrite(name, (0,), (("nobody", 1),), PASSES[name].keeps_bits)
        with pytest.raises(RewriteError):
            apply_rewrite(model.graph, registry(), unknown, PASSES)
