"""ATen operations that hand a number to the host, or say what they know without one."""

from __future__ import annotations

from typing import Final

from neaptide.ir.registry import Trait, no_bytes
from neaptide.ops.table import meaning

ROWS: Final = (
    *meaning(Trait.HOST_SCALAR, host=True)("_local_scalar_dense item is_nonzero equal allclose"),
    # The size of the result depends on the data.
    *meaning(host=True)("""
        nonzero nonzero_numpy argwhere masked_select _unique _unique2 unique_dim unique_consecutive
        unique_dim_consecutive bincount repeat_interleave.Tensor
    """),
    *meaning()("nonzero_static"),
    *meaning(host=True, bytes_moved=no_bytes)("""
        _assert_async,msg _assert_scalar _functional_assert_async.msg _functional_assert_scalar
        sym_constrain_range sym_constrain_range_for_size _functional_sym_constrain_range
        _functional_sym_constrain_range_for_size _print _linalg_check_errors
    """),
    *meaning(Trait.HOST_SCALAR, shape_only=(0,), bytes_moved=no_bytes)("""
        size,int sym_size.int sym_stride.int sym_numel sym_storage_offset sym_is_contiguous stride.int numel
        storage_offset dim is_contiguous,memory_format is_floating_point is_complex is_same_size
        _assert_tensor_metadata _fused_sdp_choice
    """),
)
