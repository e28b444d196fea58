"""ATen ops whose result looks at the bytes of their first operand."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.registry import OpSpec, Trait, no_bytes
from neaptide.ops.table import declare

_VIEWS = """
    alias.default as_strided.default detach.default diagonal.default expand.default lift_fresh.default
    permute.default real.default imag.default select.int slice.Tensor split.Tensor,sizes
    split_with_sizes.default squeeze.default,dim,dims t.default transpose.int unbind.int unfold.default
    unsqueeze.default view.default,dtype view_as_complex.default view_as_real.default _conj.default
    _neg_view.default adjoint.default mH.default mT.default matrix_H.default numpy_T.default
    movedim.int,intlist moveaxis.int,intlist swapaxes.default swapdims.default narrow.default,Tensor
    flatten.using_ints unflatten.int broadcast_to.default chunk.default
    tensor_split.indices,sections,tensor_indices_or_sections hsplit.array,int vsplit.array,int
    dsplit.array,int unsafe_chunk.default _fw_primal.default _reshape_alias.default slice_inverse.default
    ravel.default atleast_1d.default,Sequence atleast_2d.default,Sequence atleast_3d.default,Sequence
    reshape.default contiguous.default conj.default positive.default indices.default
    values.default data.default lift.default broadcast_tensors.default meshgrid.default,indexing
    resolve_conj.default resolve_neg.default
"""

# The other operand lends its shape only.
_LIKE = "expand_as.default view_as.default reshape_as.default"

# The result may not be changed in place, so the schema marks no alias; the bytes are the operand's all the same.
_UNSAFE_VIEWS = """
    _unsafe_view.default unsafe_split.Tensor unsafe_split_with_sizes.default
"""

# They change the operand's own shape and strides and no byte. Everyone who holds the tensor sees the new shape, so
# they are ordered like writes.
_IN_PLACE_VIEWS = """
    as_strided_.default detach_.default squeeze_.default,dim,dims swapaxes_.default swapdims_.default
    t_.default transpose_.default unsqueeze_.default requires_grad_.default
"""


def rows() -> Iterator[OpSpec]:
    """Views. `reshape`, `contiguous` and a few like them copy when they must: storages tell, not names."""
    yield from declare(_VIEWS, Trait.VIEW, bytes_moved=no_bytes)
    yield from declare(_LIKE, Trait.VIEW, shape_only=(1,), bytes_moved=no_bytes)
    yield from declare(_UNSAFE_VIEWS, Trait.VIEW, bytes_moved=no_bytes)
    yield from declare(_IN_PLACE_VIEWS, Trait.VIEW, bytes_moved=no_bytes)
