"""Passes after passes: what one makes, another can change, and the numbers stay."""

import contextlib

import numpy as np
import pytest

from neaptide.errors import RewriteError
from neaptide.ops.onnx import registry
from neaptide.transform.passes import PASSES
from neaptide.transform.rewrite import apply_rewrite, apply_rule
from support.together import together

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnxruntime

from frontends.onnx.onnx_files import model, node, tensor, weight
from neaptide.frontends.onnx.reader import read_model
from neaptide.lower.onnx.session import session_options
from neaptide.lower.onnx.writer import write_model
from neaptide_corpus.onnx_models.feeds import largest_error, random_feeds


def joined():
    """Two convolutions of one operand, joined, normalised and pooled: most passes find a place in it."""
    return model(
        [
            node("a = Conv(x, w0, b0)", pads=[1, 1, 1, 1]),
            "r = Relu(a)",
            node("c = Conv(r, w1)", pads=[1, 1, 1, 1]),
            node("d = Conv(r, w2)", pads=[1, 1, 1, 1]),
            node("j = Concat(c, d)", axis=1),
            "n = BatchNormalization(j, s, t, m, v)",
            "e = Relu(n)",
            node("f = Conv(e, w3)", pads=[1, 1, 1, 1]),
            "g = Relu(f)",
            node("y = MaxPool(g)", kernel_shape=[2, 2], strides=[2, 2]),
        ],
        [tensor("x", 1, 4, 16, 16)],
        [tensor("y", 1, 8, 8, 8)],
        [
            weight("w0", 8, 4, 3, 3),
            weight("b0", 8, seed=1),
            weight("w1", 8, 8, 3, 3, seed=2),
            weight("w2", 8, 8, 3, 3, seed=3),
            weight("w3", 8, 16, 3, 3, seed=4),
            *(weight(name, 16, seed=5) for name in ("s", "t", "m")),
            positive("v", 16),
        ],
    )


def positive(name, *shape):
    made = weight(name, *shape, seed=6)
    values = np.abs(np.frombuffer(made.raw_data, np.float32)) + 0.5
    made.raw_data = values.astype(np.float32).tobytes()
    return made


def run(made):
    session = onnxruntime.InferenceSession(made.SerializeToString(), session_options())
    return session.run(None, random_feeds(made))


def applied(graph, name):
    """The graph after a pass at all its places, or at the first that is legal of alternatives; None where there is none."""
    rule, rows = PASSES[name], registry()
    if not rule.are_alternatives:
        changed = apply_rule(graph, rows, rule)
        return changed.edited.graph if changed.rewrites else None
    for place in rule.find(graph, rows):
        with contextlib.suppress(RewriteError):
            return apply_rewrite(graph, rows, place, PASSES).graph
    return None


MADE = joined()


@together("first", PASSES)
def test_a_pass_after_a_pass_keeps_the_numbers(first):
    read, expected = read_model(MADE), run(MADE)
    graph = applied(read.graph, first)
    if graph is None:
        return
    for second in PASSES:
        after = applied(graph, second)
        if after is not None:
            assert largest_error(run(write_model(read, after)), expected) < 1e-5, second


def test_most_passes_find_a_place():
    graph = read_model(MADE).graph
    found = {name for name in PASSES if applied(graph, name) is not None}
    assert found >= {"elementwise_before_concat", "merge_convolutions", "relu_pool_swap"}
    assert found >= {name for name in PASSES if name.startswith(("channel_fission", "windows"))}
