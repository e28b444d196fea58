"""The deepest sum, against what kernels make of ones: then each number of a result is the count of its terms."""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide import zoo
from neaptide.analysis.sum_depth import deepest_sum
from neaptide.errors import SymbolicError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import MergeMap, SliceMap
from neaptide.ops import registry
from neaptide.runtime.steps.capturing import capture
from neaptide.symbolic.size_expr import SizeExpr
from ops.op_calls import make_call
from support.drawn import examples
from support.together import together

ATEN = torch.ops.aten
SIZES = st.integers(1, 6)


def depth(op, *args, **kwargs):
    """Of a graph of one operation."""
    return deepest_sum(make_call(op, args, kwargs, op(*args, **kwargs)).graph, registry())


def counted(op, *args):
    """The largest number that an operation which only adds and multiplies makes of ones."""
    return max(int(made.max()) for made in torch.utils._pytree.tree_leaves(op(*args)) if made is not None)


@st.composite
def products(draw):
    b, m, k, n = (draw(SIZES) for _ in range(4))
    return draw(
        st.sampled_from(
            [
                (ATEN.mm.default, torch.ones(m, k), torch.ones(k, n)),
                (ATEN.mm.default, (x := torch.ones(k, k)), x),
                (ATEN.bmm.default, torch.ones(b, m, k), torch.ones(b, k, n)),
                (ATEN.mv.default, torch.ones(m, k), torch.ones(k)),
                (ATEN.dot.default, torch.ones(k), torch.ones(k)),
                (ATEN.addmm.default, torch.zeros(n), torch.ones(m, k), torch.ones(k, n)),
                (ATEN.addbmm.default, torch.zeros(m, n), torch.ones(b, m, k), torch.ones(b, k, n)),
                (ATEN.linear.default, torch.ones(b, m, k), torch.ones(n, k), torch.zeros(n)),
                (ATEN.matmul.default, torch.ones(b, m, k), torch.ones(k, n)),
            ]
        )
    )


@st.composite
def reductions(draw):
    a, b, c = (draw(SIZES) for _ in range(3))
    x = torch.ones(a, b, c)
    return draw(
        st.sampled_from(
            [
                (ATEN.sum.default, x),
                (ATEN.sum.dim_IntList, x, [0, 2]),
                (ATEN.sum.dim_IntList, x, [1], True),
                (ATEN.cumsum.default, x, 1),
                (ATEN.embedding_dense_backward.default, x, torch.zeros(a, b, dtype=torch.long), 3, -1, False),
                (ATEN.index_add.default, torch.zeros(2, c), 0, torch.zeros(b, dtype=torch.long), torch.ones(b, c)),
                (ATEN.index_put.default, torch.zeros(2, c), [torch.zeros(b, dtype=torch.long)], torch.ones(b, c), True),
                (ATEN.mse_loss.default, x, torch.zeros(a, b, c), 2),
                (ATEN.avg_pool2d.default, torch.ones(1, 2, a + 2, b + 2), [2, 3], [], [0, 0], False, True, 1),
            ]
        )
    )  # fmt: skip


@st.composite
def convolutions(draw):
    """Wide enough that a window lies inside, an element in as many windows as can be, and a tap never on padding."""
    groups, kernel, stride = (draw(st.integers(1, 3)) for _ in range(3))
    dilation, padding = draw(st.integers(1, 2)), draw(st.integers(0, int(kernel == 3)))
    given, made = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    wide = 3 * dilation * kernel + 2 * stride
    image, weight = (
        torch.ones(draw(st.integers(1, 2)), given, wide, wide),
        torch.ones(made, given // groups, kernel, kernel),
    )
    steps = [[stride] * 2, [padding] * 2, [dilation] * 2, False, [0, 0], groups]
    return image, weight, steps  # fmt: skip


@settings(max_examples=examples(200), deadline=None)
@given(st.one_of(products(), reductions()))
def test_products_and_reductions_have_as_many_terms_as_ones_add_up_to(call):
    assert depth(*call) == counted(*call)


@settings(max_examples=examples(100), deadline=None)
@given(convolutions(), st.integers(1, 7))
def test_convolutions_and_their_gradients_do_so_too(call, mask):
    image, weight, steps = call
    assert depth(ATEN.convolution.default, image, weight, None, *steps) == counted(
        ATEN.convolution.default, image, weight, None, *steps
    )
    groups = steps[-1]
    if groups > 1 and not weight.shape[1] == weight.shape[0] // groups == 1:
        return  # no row tells channels of groups
    made = torch.ones_like(ATEN.convolution.default(image, weight, None, *steps))
    which = [bool(mask & bit) for bit in (1, 2, 4)]
    gradients = (made, image, weight, [weight.shape[0]], *steps, which)
    assert depth(ATEN.convolution_backward.default, *gradients) == counted(
        ATEN.convolution_backward.default, *gradients
    )


X = torch.rand(4, 6, 5, 3)
TOKENS = torch.rand(2, 7, 6)
HEADS = torch.rand(2, 3, 9, 4)


@together(
    ("op", "args", "terms"),
    [
        (ATEN._softmax.default, (TOKENS, 1, False), 7),
        (ATEN._log_softmax_backward_data.default, (TOKENS, TOKENS, 2, torch.float32), 6),
        (ATEN.native_layer_norm.default, (TOKENS, [6], None, None, 1e-5), 6),
        (ATEN.native_layer_norm.default, (TOKENS, [7, 6], None, None, 1e-5), 42),
        (ATEN._fused_rms_norm.default, (TOKENS, [6], torch.ones(6), 1e-5), 6),
        (ATEN.native_group_norm.default, (X, None, None, 4, 6, 15, 2, 1e-5), 45),
        (ATEN.native_batch_norm.default, (X, None, None, None, None, True, 0.1, 1e-5), 60),
        (ATEN.var.correction, (X, [0, 2]), 20),
        (ATEN.linalg_vector_norm.default, (X, 2, [1, 2]), 30),
        (ATEN.logsumexp.default, (TOKENS, [1]), 7),
        (ATEN.mean.default, (X,), 360),
        (ATEN._adaptive_avg_pool2d.default, (X, [1, 1]), 15),
        (ATEN._scaled_dot_product_flash_attention_for_cpu.default, (HEADS, HEADS, HEADS), 9),
        (ATEN.nll_loss_forward.default, (torch.rand(8, 5), torch.zeros(8, dtype=torch.long), None, 1, -100), 8),
        (ATEN._foreach_norm.Scalar, ([X, TOKENS],), 360),
        # What chooses numbers, moves them, or takes them one by one makes no sum, and whole numbers round nowhere.
        (ATEN.amax.default, (X, [1]), 1),
        (ATEN.argmax.default, (X, 1), 1),
        (ATEN.sum.default, (torch.ones(9, dtype=torch.long),), 1),
        (ATEN.max_pool2d_with_indices.default, (X, [2, 2]), 1),
        (ATEN.select.int, (X, 0, 1), 1),
        (ATEN.cat.default, ([X, X], 1), 1),
        (ATEN.gelu.default, (X,), 1),
        (ATEN.sort.default, (X, 1), 1),
    ],
)  # fmt: skip
def test_terms_counted_by_hand(op, args, terms):
    assert depth(op, *args) == terms


def test_gradients_of_norms_add_up_tokens_or_the_width():
    made = ATEN.native_layer_norm.default(TOKENS, [6], torch.ones(6), torch.ones(6), 1e-5)
    backward = (
        ATEN.native_layer_norm_backward.default,
        TOKENS,
        TOKENS,
        [6],
        made[1],
        made[2],
        torch.ones(6),
        None,
    )
    assert depth(*backward, [True, True, False]) == 14
    assert depth(*backward, [True, False, False]) == 6  # fmt: skip


def test_the_deepest_operation_of_a_graph_decides_and_an_unknown_one_counts_elements():
    b = GraphBuilder("several")
    x, w = b.input("x", (4, 8)), b.input("w", (8, 3))
    (y,) = b.node("aten.mm.default", x, w, outputs=["y: f32[4, 3]"])
    (total,) = b.node("aten.sum.default", y, outputs=["t: f32[]"])
    b.output(total)
    assert deepest_sum(b.finish(), registry()) == 12
    b = GraphBuilder("unknown")
    (few,) = b.node("toy.fewer", b.input("x", (4, 8)), outputs=["few: f32[5]"])
    (many,) = b.node("toy.more", few, outputs=["many: f32[5, 9]"])
    b.output(many)
    assert deepest_sum(b.finish(), registry()) == 7
    assert deepest_sum(GraphBuilder("empty").finish(), registry()) == 1


def test_a_loop_that_adds_up_its_parts_has_a_term_for_each_trip():
    def loop(merge, made):
        part = SizeExpr.dim("part")
        body = GraphBuilder("body")
        x, y = body.input("x", (4, part)), body.input("y", (part, 3))
        (z,) = body.node("aten.mm.default", x, y, outputs=["z: f32[4, 3]"])
        body.output(z)
        b = GraphBuilder("loop")
        given = [b.input("x", (4, 11)), b.input("y", (11, 3))]
        slices = [SliceMap(0, 1, SizeExpr.const(4)), SliceMap(1, 0, SizeExpr.const(4))]
        b.output(*b.loop(body.finish(), 3, given, outputs=[made], slices=slices, merges=[merge]))
        return b.finish()

    assert deepest_sum(loop(MergeMap(0, "sum"), "z: f32[4, 3]"), registry()) == 4 + 3
    assert deepest_sum(loop(MergeMap(0, "concat", 0), "z: f32[12, 3]"), registry()) == 4


def test_a_dim_without_a_value_is_an_error():
    b = GraphBuilder("symbolic")
    b.output(*b.node("aten.sum.default", b.input("x", (SizeExpr.dim("T"),)), outputs=["t: f32[]"]))
    with pytest.raises(SymbolicError):
        deepest_sum(b.finish(), registry())


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["gpt2@small", "llama@small", "unet@small"])
def test_the_terms_of_models_are_those_that_the_documentation_names(spec):
    step, batch = zoo.factory(spec, device="meta")()
    programs = capture(step, (batch,)).programs
    terms = max(deepest_sum(program.graph, registry()) for program in programs)
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "numerics.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith(f"| `{spec}` |"))
    assert row.endswith(f"| {terms:,} | {math.isqrt(terms)} |")
