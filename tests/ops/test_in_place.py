"""Every claim of the op table about results on top of operands, on real kernels; and what must never be claimed."""

import pytest

from neaptide.ir.registry import Trait
from neaptide.ops import registry
from neaptide.ops.in_place import in_place_form
from support.together import together

torch = pytest.importorskip("torch")
overwriting = pytest.importorskip("layout.overwriting")

LISTED = sorted(row.name for row in registry() if row.in_place)

DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int32, torch.bool)
SHAPE = (3, 5, 4, 7)  # no multiple of a vector's width
LAYOUTS = ("contiguous", "channels_last", "transposed", "broadcast")


def operand(dtype, number, layout, *, shape=SHAPE):
    chance = torch.Generator().manual_seed(number)
    if dtype is torch.bool:
        data = torch.randint(0, 2, shape, generator=chance).bool()
    elif dtype is torch.int32:
        data = torch.randint(1, 5, shape, generator=chance, dtype=dtype)
    else:
        data = (torch.rand(shape, generator=chance, dtype=torch.float64) * 0.8 + 0.1).to(dtype)
    if layout == "channels_last":
        return data.contiguous(memory_format=torch.channels_last)
    return data.transpose(0, 3).contiguous().transpose(0, 3) if layout == "transposed" else data


def call_arguments(op, dtype, layout, reduction):
    """Arguments of a call, and the positions of its tensors."""
    arguments, tensors = [], []
    for position, wanted in enumerate(overwriting.operation(op)._schema.arguments):
        kind = str(wanted.type)
        if wanted.kwarg_only:
            break
        if kind == "Tensor" or (kind == "Optional[Tensor]" and op in CLAMPS):
            small = layout == "broadcast" and len(tensors) > 0
            own = torch.bool if (op, position) in MASKS else dtype
            shape = () if (op, position) in SCALAR_TENSORS else SHAPE[1:] if small else SHAPE
            tensors.append(position)
            arguments.append(operand(own, position, "contiguous" if len(shape) < 4 else layout, shape=shape))
        elif wanted.name == "reduction":
            arguments.append(reduction)
        elif wanted.name in VALUES:
            arguments.append(VALUES[wanted.name])
        elif wanted.has_default_value() and wanted.default_value is not None:
            arguments.append(wanted.default_value)
        elif kind in {"number", "Scalar", "Optional[number]", "float", "Optional[float]"}:
            arguments.append(True if dtype is torch.bool else 2 if dtype is torch.int32 else 0.5)
        else:
            arguments.append(None)
    return arguments, tensors


MASKS = {
    ("aten.where.self", 0),
    ("aten.masked_fill.Scalar", 1),
    ("aten.masked_fill.Tensor", 1),
}
SCALAR_TENSORS = {("aten.masked_fill.Tensor", 2)}
CLAMPS = {"aten.clamp.Tensor", "aten.clip.Tensor"}
VALUES = {"n": 1, "decimals": 1, "rounding_mode": "floor", "is_result": True}
KEYWORDS = {
    "aten.div.Tensor_mode": {"rounding_mode": "floor"},
    "aten.div.Scalar_mode": {"rounding_mode": "floor"},
    "aten.divide.Tensor_mode": {"rounding_mode": "floor"},
    "aten.divide.Scalar_mode": {"rounding_mode": "floor"},
    "aten.round.decimals": {"decimals": 1},
}


# What the derivatives of losses say of operands of several shapes, which no step gives them; to Python from 2.15 on.
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning")
@together("op", LISTED)
def test_result_on_top_of_an_operand_has_the_same_bits(op):
    row = registry().require(op)
    is_loss = row.is_a(Trait.LOSS)
    keywords = KEYWORDS.get(op, {})
    tried = set()
    for dtype in DTYPES[:3] if is_loss else DTYPES:
        for layout in LAYOUTS:
            for reduction in (0, 1) if is_loss else (0,):
                arguments, tensors = call_arguments(op, dtype, layout, reduction)
                assert set(row.in_place) <= set(tensors)
                try:
                    expected = overwriting.operation(op)(*arguments, **keywords)
                except (RuntimeError, NotImplementedError):
                    continue  # not for this dtype
                for position in row.in_place:
                    copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
                    over = copies[position]
                    key = (over.dtype, over.shape, over.stride())
                    if key != (expected.dtype, expected.shape, expected.stride()):
                        continue
                    place = overwriting.overwrite(op, copies, keywords, position)
                    assert place.data_ptr() == over.data_ptr()
                    assert torch.equal(overwriting.bits(over), overwriting.bits(expected)), (
                        dtype,
                        layout,
                        position,
                    )
                    tried.add(position)
    assert tried == set(row.in_place)


def test_claims_are_for_known_functional_rows_of_one_result():
    for op in LISTED:
        row = registry().require(op)
        assert row.in_place
        assert not row.writes
        assert not row.rng
        assert len(overwriting.operation(op)._schema.returns) == 1


def test_no_trait_but_those_of_one_pass_is_claimed():
    allowed = {Trait.ELEMENTWISE, Trait.LOSS, Trait.COPY}
    assert all(registry().require(op).traits <= allowed for op in LISTED)


# -- forms, held against the schemas of PyTorch

# Their keyword belongs to an overload of another kind, so no plan has it.
WITHOUT = {"aten.max.other", "aten.min.other", "aten.huber_loss_backward.default"} | {
    "aten.xlogy.Tensor",
    "aten.xlogy.Scalar_Self",
}
FORMS = [
    (op, position, form)
    for op in LISTED
    for position in registry().require(op).in_place
    if (form := in_place_form(registry(), op, position)) is not None
]


def schema_arguments(op):
    library, name, overload = op.split(".")
    operation = getattr(getattr(getattr(torch.ops, library), name), overload)
    return operation, [(a.name, str(a.type), a.kwarg_only) for a in operation._schema.arguments]


@together(("op", "position", "form"), FORMS, ids=str)
def test_it_takes_the_same_arguments_and_the_keyword(op, position, form):
    operation, arguments = schema_arguments(form.op)
    if form.keyword:
        assert torch.Tag.generated not in operation.tags
        assert (form.keyword, "Tensor", True) in arguments
        arguments.remove((form.keyword, "Tensor", True))
    else:
        assert position == 0
    assert arguments == schema_arguments(op)[1]


def test_only_known_operations_have_none():
    having = {op for op, _, _ in FORMS}
    assert set(LISTED) - having <= WITHOUT


def test_what_no_table_knows_has_no_form():
    assert in_place_form(registry(), "aten.mm.default", 0) is None
    assert in_place_form(registry(), "nobody.knows.it", 0) is None


NEVER = """
    mm.default addmm.default bmm.default baddbmm.default dot.default mv.default convolution.default
    convolution_backward.default linear.default _softmax.default _log_softmax.default _safe_softmax.default
    _softmax_backward_data.default _log_softmax_backward_data.default native_layer_norm.default
    native_layer_norm_backward.default native_group_norm.default native_batch_norm.default
    native_batch_norm_backward.default sum.dim_IntList mean.dim amax.default cumsum.default sort.default
    max_pool2d_with_indices.default max_pool2d_with_indices_backward.default avg_pool2d.default
    avg_pool2d_backward.default gather.default index_select.default embedding.default index.Tensor
    view.default t.default slice.Tensor expand.default cat.default stack.default flip.default roll.default
    clone.default _to_copy.default constant_pad_nd.default native_dropout.default bernoulli.p rand_like.default
    rrelu_with_noise.default nll_loss_forward.default nll_loss_backward.default soft_margin_loss.default
    soft_margin_loss_backward.default log_sigmoid_forward.default glu.default ones_like.default
    _scaled_dot_product_flash_attention_for_cpu.default upsample_bilinear2d.default frexp.Tensor
"""


@together("op", NEVER.split())
def test_never_in_place(op):
    assert registry().require(f"aten.{op}").in_place == ()
