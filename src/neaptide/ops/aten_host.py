"""ATen ops that talk to the host: numbers read back, sizes asked for, sizes that depend on data, assertions."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.registry import OpSpec, Trait, no_bytes
from neaptide.ops.table import declare

_NUMBERS = """
    _local_scalar_dense.default item.default is_nonzero.default equal.default allclose.default
"""
# The size of the result depends on the data.
_DATA_DEPENDENT = """
    nonzero.default nonzero_numpy.default argwhere.default masked_select.default _unique.default
    _unique2.default unique_dim.default unique_consecutive.default unique_dim_consecutive.default
    bincount.default repeat_interleave.Tensor
"""
_STATIC_NONZERO = """
    nonzero_static.default
"""
_ASSERTIONS = """
    _assert_async.default,msg _assert_scalar.default _functional_assert_async.msg
    _functional_assert_scalar.default sym_constrain_range.default sym_constrain_range_for_size.default
    _functional_sym_constrain_range.default _functional_sym_constrain_range_for_size.default
    _print.default _linalg_check_errors.default
"""
_METADATA = """
    size.default
    sym_size.int sym_stride.int sym_numel.default sym_storage_offset.default sym_is_contiguous.default
    size.int stride.int numel.default storage_offset.default dim.default
    is_contiguous.default,memory_format is_floating_point.default is_complex.default is_same_size.default
    _assert_tensor_metadata.default _fused_sdp_choice.default
"""


def rows() -> Iterator[OpSpec]:
    """Whatever ends or begins on the host."""
    yield from declare(_NUMBERS, Trait.HOST_SCALAR, host=True)
    yield from declare(_DATA_DEPENDENT, host=True)
    yield from declare(_STATIC_NONZERO)
    yield from declare(_ASSERTIONS, host=True, bytes_moved=no_bytes)
    yield from declare(_METADATA, Trait.HOST_SCALAR, shape_only=(0,), bytes_moved=no_bytes)
