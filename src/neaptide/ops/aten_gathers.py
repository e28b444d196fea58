"""ATen ops that pick or place elements by index: embedding, gather, scatter, index."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.registry import OpSpec, Trait, tensor_traffic
from neaptide.ops.formulas import per_input, per_output
from neaptide.ops.storages import bag_of_each_index
from neaptide.ops.table import declare
from neaptide.ops.traffic import gather_traffic, scatter_in_place_traffic

_PICKS = """
    embedding.default,out index.Tensor _unsafe_index.Tensor _unsafe_masked_index.default
    index_select.default,out gather.default,out take.default,out take_along_dim.default,out
"""
_BAGS = """
    _embedding_bag.out=out0+out1+out2+out3 _embedding_bag_forward_only.out=out0+out1+out2+out3
    embedding_bag.default,padding_idx
"""
_GRADIENT_SUMS = """
    embedding_dense_backward.default,out embedding_backward.default _embedding_bag_backward.default
    _embedding_bag_dense_backward.default,out _embedding_bag_per_sample_weights_backward.default,out
    _unsafe_masked_index_put_accumulate.default index_select_backward.default gather_backward.default
"""
# A copy of the whole tensor with some elements replaced.
_PLACES = """
    scatter.reduce,src,value,value_reduce index_copy.default index_fill.int_Scalar,int_Tensor
    masked_scatter.default masked_scatter_backward.default
"""
_PLACES_IN_PLACE = """
    scatter_.reduce,src,value,value_reduce index_copy_.default index_fill_.int_Scalar,int_Tensor
    masked_scatter_.default
"""
# With duplicate indices the sum is done with atomics on CUDA; without `accumulate`, which of them wins is open.
_SUMS = """
    scatter_add.default index_add.default index_put.default _unsafe_index_put.default scatter_reduce.two
    index_reduce.default put.default segment_reduce.default _segment_reduce_backward.default
    _index_put_impl.default
"""
_SUMS_IN_PLACE = """
    scatter_add_.default index_add_.default index_put_.default _index_put_impl_.default
    scatter_reduce_.two index_reduce_.default put_.default
"""
_RENORM = """
    embedding_renorm_.default
"""
_OUT = """
    scatter.reduce_out,src_out,value_out,value_reduce_out index_copy.out
    index_fill.int_Scalar_out,int_Tensor_out masked_scatter.out scatter_add.out index_add.out
    index_put.out scatter_reduce.two_out index_reduce.out put.out
"""


def rows() -> Iterator[OpSpec]:
    """Indexing, forward and backward."""
    yield from declare(_PICKS, Trait.GATHER, bytes_moved=gather_traffic)
    yield from declare(_BAGS, Trait.GATHER, Trait.REDUCTION, flops=per_output(1), bytes_moved=gather_traffic)
    yield from declare(
        "_embedding_bag.default _embedding_bag_forward_only.default",
        Trait.GATHER,
        Trait.REDUCTION,
        flops=per_output(1),
        bytes_moved=gather_traffic,
        storage_bytes=bag_of_each_index,
    )
    yield from declare(_GRADIENT_SUMS, flops=per_input(1), bytes_moved=tensor_traffic, deterministic=False)
    yield from declare(_PLACES, bytes_moved=tensor_traffic)
    yield from declare(_PLACES_IN_PLACE, bytes_moved=scatter_in_place_traffic)
    yield from declare(_SUMS, flops=per_output(1), bytes_moved=tensor_traffic, deterministic=False)
    yield from declare(_SUMS_IN_PLACE, bytes_moved=scatter_in_place_traffic, deterministic=False)
    yield from declare(_RENORM, bytes_moved=scatter_in_place_traffic)
    yield from declare(_OUT, deterministic=False)
