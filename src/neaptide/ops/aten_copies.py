"""ATen ops that move elements unchanged: copies, casts, joins, paddings, permutations."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.registry import OpSpec, Trait
from neaptide.ops.formulas import per_output
from neaptide.ops.storages import columns
from neaptide.ops.table import declare
from neaptide.ops.traffic import overwrite_traffic

# Element by element as well: a cast may sink through arithmetic.
_PLAIN = """
    _to_copy.default clone.default lift_fresh_copy.default to.device,dtype,dtype_layout,other
    type_as.default _cast_Float.default _cast_Double.default _cast_Half.default _cast_Long.default
    _cast_Int.default _pin_memory.default pin_memory.default copy.default detach_copy.default
    alias_copy.default
"""
_ONTO = """
    copy_.default
"""
_JOINS = """
    cat.default,out stack.default,out _stack.default,out concat.default,out concatenate.default,out
    hstack.default,out vstack.default,out dstack.default,out column_stack.default,out
    row_stack.default,out block_diag.default,out _chunk_cat.default,out pad_sequence.default
"""
_REARRANGEMENTS = """
    flip.default,out fliplr.default flipud.default roll.default,out rot90.default,out repeat.default,out
    tile.default repeat_interleave.self_Tensor,self_int channel_shuffle.default,out
    native_channel_shuffle.default pixel_shuffle.default,out pixel_unshuffle.default,out
    constant_pad_nd.default,out pad.default _pad_circular.default _pad_enum.default
    reflection_pad1d.default,out reflection_pad2d.default,out reflection_pad3d.default,out
    replication_pad1d.default,out replication_pad2d.default,out replication_pad3d.default,out
    tril.default,out triu.default,out diag_embed.default,out diag.default,out diagflat.default
    view_copy.default,dtype,dtype_out,out expand_copy.default,out permute_copy.default,out
    transpose_copy.int,int_out t_copy.default,out slice_copy.Tensor,Tensor_out select_copy.int,int_out
    squeeze_copy.default,dim,dim_out,dims,dims_out,out unsqueeze_copy.default,out
    split_copy.Tensor,Tensor_out split_with_sizes_copy.default,out unbind_copy.int,int_out
    diagonal_copy.default,out as_strided_copy.default,out unfold_copy.default,out _reshape_copy.default
    narrow_copy.default,out view_as_real_copy.default,out view_as_complex_copy.default,out
    slice_scatter.default,out select_scatter.default,out diagonal_scatter.default,out
    as_strided_scatter.default,out slice_backward.default,out select_backward.default,out
    diagonal_backward.default,out kron.default,out to_padded_tensor.default,out cartesian_prod.default
    combinations.default
"""
_IN_PLACE_MASKS = """
    tril_.default triu_.default fill_diagonal_.default
"""
# Their CPU and CUDA kernels add overlapping windows.
_FOLDS = """
    unfold_backward.default,out reflection_pad1d_backward.default,grad_input=grad_input
    reflection_pad2d_backward.default,grad_input=grad_input
    reflection_pad3d_backward.default,grad_input=grad_input
    replication_pad1d_backward.default,grad_input=grad_input
    replication_pad2d_backward.default,grad_input=grad_input
    replication_pad3d_backward.default,grad_input=grad_input
"""
_COLUMNS = """
    im2col.default col2im.default
"""
_COLUMNS_OUT = """
    im2col.out col2im.out
"""


def rows() -> Iterator[OpSpec]:
    """Copies of every kind."""
    yield from declare(_PLAIN, Trait.COPY, Trait.ELEMENTWISE)
    yield from declare(_ONTO, Trait.COPY, Trait.ELEMENTWISE, bytes_moved=overwrite_traffic)
    yield from declare(_JOINS, Trait.COPY)
    yield from declare(_REARRANGEMENTS, Trait.COPY)
    yield from declare(_IN_PLACE_MASKS, Trait.COPY)
    yield from declare(_FOLDS, flops=per_output(1), deterministic=False)
    yield from declare(_COLUMNS, Trait.COPY, flops=per_output(1), storage_bytes=columns)
    yield from declare(_COLUMNS_OUT, Trait.COPY, flops=per_output(1))
