"""Overloads that write where they are told, as the schemas have them."""

from __future__ import annotations

import pytest

from neaptide.lower.out_variants import out_variants, reads_whole_storage
from support.together import together


@together(
    ("op", "expected", "keywords"),
    [
        ("aten.mm.default", "aten.mm.out", ("out",)),
        ("aten.add.Tensor", "aten.add.out", ("out",)),
        ("aten.threshold_backward.default", "aten.threshold_backward.grad_input", ("grad_input",)),
        ("aten.sum.dim_IntList", "aten.sum.IntList_out", ("out",)),
        ("aten.topk.default", "aten.topk.values", ("values", "indices")),
        ("aten.native_batch_norm.default", "aten.native_batch_norm.out", ("out", "save_mean", "save_invstd")),
        # The overload for a number is generated; the one for a tensor takes numbers, too.
        ("aten.mul.Scalar", "aten.mul.out", ("out",)),
        ("aten.relu.default", "aten.clamp_min.out", ("out",)),
        # Written by hand although it has no kernel of its own.
        ("aten.stack.default", "aten.stack.out", ("out",)),
    ],
)
def test_an_operation_with_an_overload_of_its_own(op, expected, keywords):
    first = out_variants(op)[0]
    assert (first.op, first.keywords) == (expected, keywords)


def test_keywords_of_a_fresh_result_are_dropped():
    variant = out_variants("aten.zeros.default")[0]
    assert variant.op == "aten.zeros.out"
    assert variant.dropped == {"dtype", "layout", "device", "pin_memory"}


@pytest.mark.parametrize("op", ["aten.clone.default", "aten._to_copy.default"])
def test_a_copy_copies_into_its_place(op):
    (variant,) = out_variants(op)
    assert variant.is_copy
    assert variant.op == "aten.copy_.default"


@together(
    "op",
    [
        "aten.convolution.default",  # generated: computes as ever and copies
        "aten.native_layer_norm.default",
        "aten._scaled_dot_product_flash_attention_for_cpu.default",  # none at all
        "aten._foreach_add.List",  # lists
        "aten.relu_.default",
        "host.math_tanh",
        "toy.nothing.default",
    ],
)
def test_an_operation_without_one(op):
    assert out_variants(op) == ()


def test_operations_that_count_from_the_start_of_a_storage():
    assert reads_whole_storage("aten.as_strided.default")
    assert not reads_whole_storage("aten.view.default")
    assert reads_whole_storage("toy.nothing.default"), "what is not known may do anything"
