"""Is the table consistent with PyTorch's own schemas and tags? Every disagreement is listed here with its reason."""

import torch

from neaptide.ir.registry import Trait
from neaptide.ops import registry
from support.together import together

# In 2.13 but not in `native_functions.yaml` of 2.11.
NOT_IN_EVERY_VERSION = {
    "aten._foreach_clone",
    "aten._foreach_mm",
    "aten._upsample_lanczos2d_aa",
    "aten._upsample_lanczos2d_aa_backward",
    "aten.cholesky",
    "aten.dim",
    "aten.is_contiguous",
    "aten.numel",
    "aten.storage_offset",
}

# The schema marks these arguments as overwritten although most calls leave them alone; `writes_if` knows when.
WRITES_DEPEND_ON_THE_CALL = {
    "aten.rrelu_with_noise.default",  # the noise, in training only
    "aten.rrelu_with_noise_.default",
    "aten._native_batch_norm_legit.default",  # running statistics, in training only
    "aten._native_batch_norm_legit.out",
    "aten._batch_norm_with_update.default",
    "aten._fused_adam_.default",  # the gradients, with a `grad_scale` only
    "aten._fused_adam_.tensor_lr",
    "aten._fused_adamw_.default",
    "aten._fused_adamw_.tensor_lr",
    "aten._fused_sgd_.default",
    "aten._fused_sgd_.tensor_lr",
    "aten._fused_adagrad_.default",  # and the step counters never, though marked in one overload
    "aten._fused_adagrad_.tensor_lr",
}

# The schema does not mark these writes at all.
HIDDEN_WRITES = {
    "aten.native_batch_norm.default",  # running statistics in training
    "aten.native_batch_norm.out",
    "aten.cudnn_batch_norm.default",
    "aten.miopen_batch_norm.default",
    "aten.batch_norm.default",
    "aten.instance_norm.default",
    "aten.batch_norm_gather_stats.default",
    "aten.batch_norm_gather_stats_with_counts.default",
    "aten.batch_norm_update_stats.default",
    "aten.mkldnn_rnn_layer_backward.default",  # the workspace of the forward pass
    "aten._cudnn_rnn.default",  # the generator kept in `dropout_state`
    "aten.miopen_rnn.default",
}

# Results alias an operand although the schema does not say so.
UNMARKED_VIEWS = {
    "aten._unsafe_view.default",
    "aten.unsafe_split.Tensor",
    "aten.unsafe_split_with_sizes.default",
    "aten.unsafe_chunk.default",
    "aten.atleast_1d.default",
    "aten.atleast_1d.Sequence",
    "aten.atleast_2d.default",
    "aten.atleast_2d.Sequence",
    "aten.atleast_3d.default",
    "aten.atleast_3d.Sequence",
    "aten.broadcast_tensors.default",
    "aten.meshgrid.default",
    "aten.meshgrid.indexing",
    "aten.data.default",
    "aten.lift.default",
}

# They change the shape of their operand in place: marked as a write, a view for us.
IN_PLACE_VIEWS = {
    "as_strided_",
    "detach_",
    "squeeze_",
    "swapaxes_",
    "swapdims_",
    "t_",
    "transpose_",
    "unsqueeze_",
    "requires_grad_",
}

# Copies that hand back their operand when there is nothing to do. They are decomposed before capture.
COPIES_THAT_MAY_ALIAS = {"aten.to", "aten.pin_memory"}

# Tagged as random, yet they advance no stream: the backward passes replay the mask of a given seed, the choice is
# made from shapes, and states of cuDNN's generators follow from a seed.
TAGGED_WITHOUT_DRAW = {
    "aten._scaled_dot_product_efficient_attention_backward.default",
    "aten._scaled_dot_product_cudnn_attention_backward.default",
    "aten._cudnn_attention_backward.default",
    "aten._fused_sdp_choice.default",
    "aten._cudnn_init_dropout_state.default",
    "aten._cudnn_init_dropout_state.out",
}

# Sizes that depend on data in some calls only: a boolean index, a number of classes that is not given; CTC's come
# from lists of Python numbers.
DYNAMIC_SIZE_WITHOUT_HOST = {
    "aten.index.Tensor",
    "aten.one_hot.default",
    "aten._ctc_loss.default",
    "aten._ctc_loss.Tensor",
}


def overload_of(name):
    """The OpOverload of a row, or None where this build has none."""
    namespace, _, rest = name.partition(".")
    base, _, overload = rest.rpartition(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), base), overload)
    except (AttributeError, RuntimeError):
        return None


def torch_rows():
    return [row for row in registry() if row.name.partition(".")[0] == "aten"]


def existing():
    return [(row, op) for row in torch_rows() if (op := overload_of(row.name)) is not None]


def test_rows_exist_in_this_version():
    missing = {row.name for row in torch_rows() if overload_of(row.name) is None}
    unexpected = {name for name in missing if name.rpartition(".")[0] not in NOT_IN_EVERY_VERSION}
    if torch.backends.mkldnn.is_available():
        assert not unexpected
    else:
        assert all("mkldnn" in name for name in unexpected)


def test_names_are_those_of_str():
    assert all(str(op) == row.name for row, op in existing())


def _marked_writes(op):
    return {
        argument.name if argument.kwarg_only else position
        for position, argument in enumerate(op._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    }


def test_writes_agree_with_the_schema():
    different = {row.name for row, op in existing() if _marked_writes(op) != set(row.writes)}
    assert different == WRITES_DEPEND_ON_THE_CALL & {row.name for row, _ in existing()}


def test_writes_that_depend_on_the_call_are_listed():
    conditional = {row.name for row in torch_rows() if row.writes_if is not None}
    assert conditional == WRITES_DEPEND_ON_THE_CALL | HIDDEN_WRITES


def test_no_row_writes_more_than_the_schema_unless_listed():
    for row, op in existing():
        if row.name not in HIDDEN_WRITES:
            assert set(row.writes) <= _marked_writes(op), row.name


def _is_marked_view(op):
    arguments, returns = op._schema.arguments, op._schema.returns
    shared = any(a.alias_info is not None and not a.alias_info.is_write for a in arguments)
    return shared and any(r.alias_info is not None for r in returns)


def test_views_agree_with_the_schema():
    unmarked, uncounted = set(), set()
    for row, op in existing():
        marked, ours = _is_marked_view(op), row.is_a(Trait.VIEW)
        base = row.name.rpartition(".")[0]
        if ours and not marked and base.partition(".")[2] not in IN_PLACE_VIEWS:
            unmarked.add(row.name)
        if marked and not ours:
            uncounted.add(base)
    assert unmarked == UNMARKED_VIEWS
    assert uncounted == COPIES_THAT_MAY_ALIAS


def test_randomness_agrees_with_the_tag():
    tagged = {row.name for row, op in existing() if torch.Tag.nondeterministic_seeded in op.tags}
    ours = {row.name for row, _ in existing() if row.rng}
    assert tagged - ours == TAGGED_WITHOUT_DRAW
    assert ours <= tagged


def test_data_dependent_sizes_and_numbers_talk_to_the_host():
    tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    tagged = {row.name for row, op in existing() if tags & set(op.tags)}
    ours = {row.name for row, _ in existing() if row.host}
    assert tagged - ours == DYNAMIC_SIZE_WITHOUT_HOST


def test_shape_only_arguments_are_tensors():
    for row, op in existing():
        for position in row.shape_only:
            assert str(op._schema.arguments[position].type) == "Tensor", row.name


@together(
    "name",
    [
        "aten.scatter_add_.default",
        "aten.index_put_.default",
        "aten.embedding_dense_backward.default",
        "aten.upsample_bilinear2d_backward.default",
        "aten.avg_pool3d_backward.default",
        "aten.index_add.default",
        "aten.convolution_backward.default",
        "aten.cumsum.default",
    ],
)
def test_ops_with_atomics_are_not_deterministic(name):
    assert not registry().require(name).deterministic
