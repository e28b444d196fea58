"""Operation counts against PyTorch's own counter, on random shapes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import flop_registry

from neaptide.ops import registry
from support.together import together

ATEN = torch.ops.aten
EXTENT = st.integers(1, 9)


def _meta(*shape):
    return torch.empty(shape, device="meta")


@pytest.fixture(scope="module")
def both(record_call):
    """Our count and PyTorch's for one call; `result` stands in for running it."""

    def count(op, *args, result=None, **kwargs):
        out = op(*args, **kwargs) if result is None else result
        ours = registry().require(str(op)).flops(record_call(op, args, kwargs, out)).evaluate()
        return ours, flop_registry[op.overloadpacket](*args, **kwargs, out_val=out)

    return count


@pytest.fixture(scope="module")
def flops(record_call):
    """Our count for a call that has some result."""
    return lambda op, args, result: (
        registry().require(str(op)).flops(record_call(op, args, {}, result)).evaluate()
    )


@given(b=EXTENT, m=EXTENT, k=EXTENT, n=EXTENT)
def test_matrix_products(both, b, m, k, n):
    for op, args in (
        (ATEN.mm.default, (_meta(m, k), _meta(k, n))),
        (ATEN.addmm.default, (_meta(n), _meta(m, k), _meta(k, n))),
        (ATEN.bmm.default, (_meta(b, m, k), _meta(b, k, n))),
        (ATEN.baddbmm.default, (_meta(b, m, n), _meta(b, m, k), _meta(b, k, n))),
    ):
        ours, theirs = both(op, *args)
        assert ours == theirs


@st.composite
def convolutions(draw):
    dims = draw(st.integers(1, 3))
    transposed = draw(st.booleans())
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    c_in, c_out = draw(EXTENT) * groups, draw(EXTENT) * groups
    kernel = [draw(st.integers(1, 3)) for _ in range(dims)]
    size = [k + draw(st.integers(0, 6)) for k in kernel]
    stride = [draw(st.integers(1, 2)) for _ in range(dims)]
    padding = [draw(st.integers(0, 1)) if k > 2 else 0 for k in kernel]
    channels = (c_in, c_out // groups) if transposed else (c_out, c_in // groups)
    x, w = _meta(draw(st.integers(1, 3)), c_in, *size), _meta(*channels, *kernel)
    return x, w, (stride, padding, [1] * dims, transposed, [0] * dims, groups)


@given(convolutions())
def test_convolutions(both, case):
    x, w, options = case
    ours, theirs = both(ATEN.convolution.default, x, w, None, *options)
    assert ours == theirs


@given(convolutions(), st.booleans(), st.booleans())
def test_convolution_backward(both, case, wants_input, wants_weight):
    x, w, options = case
    grad = ATEN.convolution.default(x, w, None, *options)
    mask = [wants_input, wants_weight, False]
    result = (
        torch.empty_like(x) if wants_input else None,
        torch.empty_like(w) if wants_weight else None,
        None,
    )
    ours, theirs = both(ATEN.convolution_backward.default, grad, x, w, None, *options, mask, result=result)
    groups = options[-1]
    if groups == 1 or not wants_weight:
        assert ours == theirs
    else:
        # PyTorch counts the gradient of the weight as if the convolution had no groups.
        one_gradient = ours // (wants_input + wants_weight)
        assert theirs == one_gradient * (wants_input + groups)


def test_gradient_of_the_bias_is_counted(flops):
    x, w, grad = _meta(2, 3, 5), _meta(4, 3, 3), _meta(2, 4, 3)
    options = ([1], [0], [1], False, [0], 1)
    op, result = ATEN.convolution_backward.default, (torch.empty_like(x), torch.empty_like(w), _meta(4))
    with_bias = flops(op, (grad, x, w, [4], *options, [True] * 3), result)
    assert (
        with_bias - flops(op, (grad, x, w, None, *options, [True, True, False]), result[:2]) == grad.numel()
    )


@given(b=EXTENT, h=EXTENT, s=EXTENT, t=EXTENT, d=EXTENT, e=EXTENT)
def test_attention_forward_and_backward(both, flops, b, h, s, t, d, e):
    q, k, v = _meta(b, h, s, d), _meta(b, h, t, d), _meta(b, h, t, e)
    out, some = _meta(b, h, s, e), _meta(1)
    forward = {
        ATEN._scaled_dot_product_flash_attention.default: (q, k, v),
        ATEN._scaled_dot_product_efficient_attention.default: (q, k, v, None, True),
        ATEN._scaled_dot_product_cudnn_attention.default: (q, k, v, None, True),
    }
    of_flash = (some, None, None, s, t, 0.0, False, some, some)
    of_cudnn = (some, some, some, None, None, None, s, t, 0.0, False)
    backward = {
        ATEN._scaled_dot_product_flash_attention_backward.default: of_flash,
        ATEN._scaled_dot_product_efficient_attention_backward.default: (*[some] * 4, 0.0, [True] * 4),
        ATEN._scaled_dot_product_cudnn_attention_backward.default: of_cudnn,
    }
    for op, args in forward.items():
        ours, theirs = both(op, *args, result=out)
        assert ours == theirs == 2 * b * h * s * t * (d + e)
    for op, args in backward.items():
        ours, theirs = both(op, out, q, k, v, *args, result=(q, k, v))
        assert ours == theirs
    cpu = ATEN._scaled_dot_product_flash_attention_for_cpu.default
    assert flops(cpu, (q, k, v), out) == 2 * b * h * s * t * (d + e)


def test_batch_first_attention_layout(flops):
    q, k = _meta(2, 7, 3, 4), _meta(2, 5, 3, 4)  # (batch, tokens, heads, depth)
    assert flops(ATEN._flash_attention_forward.default, (q, k, k), q) == 2 * (2 * 3) * 7 * 5 * (4 + 4)


@given(t=EXTENT, b=EXTENT, i=EXTENT, h=EXTENT)
def test_recurrent_layer_is_its_matrix_products(flops, t, b, i, h):
    x, w_ih, w_hh = _meta(t, b, i), _meta(4 * h, i), _meta(4 * h, h)
    expected = 2 * t * b * 4 * h * (i + h)
    assert flops(ATEN.mkldnn_rnn_layer.default, (x, w_ih, w_hh), x) == expected
    assert flops(ATEN._cudnn_rnn.default, (x, [w_ih, w_hh, _meta(4 * h), _meta(4 * h)]), x) == expected


@given(b=EXTENT, i=EXTENT, j=EXTENT, o=EXTENT)
def test_trilinear_spans_all_axes(flops, b, i, j, o):
    # What `nn.Bilinear` runs: (b, i), (o, i, j), (b, j) expanded to (b, o, i, j).
    args = (_meta(b, i), _meta(o, i, j), _meta(b, j), [1, 3], [0], [1, 2], [2, 3])
    assert flops(ATEN._trilinear.default, args, _meta(b, o)) == 3 * b * o * i * j


def test_elementwise_and_lists_count_elements(call_of):
    x = torch.ones(3, 5)
    for op, args, expected in (
        (ATEN.add.Tensor, (x, x), 15),
        (ATEN.addcmul.default, (x, x, x), 45),
        (ATEN.sum.default, (x,), 15),
        (ATEN.max_pool2d_with_indices.default, (torch.ones(1, 1, 4, 4), [2, 2]), 16),
        (ATEN._foreach_add_.Scalar, ([x, x.clone()], 1.0), 30),
    ):
        assert registry().require(str(op)).flops(call_of(op, *args)).evaluate() == expected


def test_elementwise_rows_take_tensors_without_axes(record_call):
    x = _meta()
    for row in registry():
        if "elementwise" in row.traits:
            call = record_call(row.name, (x, x), {}, x)
            assert row.flops(call).evaluate() >= 0
            assert row.bytes_moved(call).evaluate() >= 0


_STAND_INS = {"bool": False, "number": 1, "int": 1, "SymInt": 1, "float": 0.5, "str": "none"}


def _made_up(kind, tensor, present):
    """An argument of a schema's type; optional ones are left out unless `present`."""
    if kind.startswith("Optional[") and not present:
        return None
    kind = kind.removeprefix("Optional[").rstrip("]") if kind.startswith("Optional[") else kind
    if kind.startswith("List["):
        return [_made_up(kind.removeprefix("List[").rstrip("]"), tensor, present)] * 2
    return tensor if kind == "Tensor" else _STAND_INS.get(kind)


@together("rank", [2, 4], quick=(1,))
@together("present", [True, False])
def test_every_row_answers_every_question_for_a_call_of_its_schema(rank, present, record_call):
    """Formulas meet odd calls (optional arguments absent, unusual ranks): they must answer, whatever the number."""
    tensor = _meta(*range(2, 2 + rank))
    for row in registry():
        namespace, _, rest = row.name.partition(".")
        if namespace != "aten" or (rank == 2 and "attention" in row.traits):
            continue
        base, _, overload = rest.rpartition(".")
        op = getattr(getattr(getattr(torch.ops, namespace), base, None), overload, None)
        if op is None:
            continue
        arguments = op._schema.arguments
        args = tuple(_made_up(str(a.type), tensor, present) for a in arguments if not a.kwarg_only)
        kwargs = {a.name: _made_up(str(a.type), tensor, present) for a in arguments if a.kwarg_only}
        call = record_call(op, args, kwargs, [tensor for r in op._schema.returns if "Tensor" in str(r.type)])
        assert row.flops(call).evaluate() >= 0, row.name
        assert row.bytes_moved(call).evaluate() >= 0, row.name
        assert row.workspace(call).evaluate() >= 0, row.name
        assert row.draws_random(call) in {True, False}
        assert set(row.written_arguments(call)) <= {*range(len(args)), *kwargs}, row.name
        if row.storage_bytes is not None:
            assert all(size.evaluate() > 0 for size in row.storage_bytes(call).values())
