"""ATen ops that make a tensor from nothing but sizes, constants or a random stream."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.registry import OpSpec, Trait, no_bytes
from neaptide.ops.formulas import per_output
from neaptide.ops.table import declare
from neaptide.ops.traffic import output_traffic, overwrite_traffic

_EMPTY = """
    empty.memory_format empty_strided.default empty_permuted.default _efficientzerotensor.default
"""
_EMPTY_LIKE = """
    empty_like.default new_empty.default new_empty_strided.default
    _new_zeros_with_same_feature_meta.default
"""
_CONSTANT = """
    zeros.default,out ones.default,out full.default,out arange.default,out,start,start_out,start_step
    range.default,out,out_=out,step
    linspace.default,Scalar_Tensor,Scalar_Tensor_out,Tensor_Scalar,Tensor_Scalar_out,Tensor_Tensor,Tensor_Tensor_out,out
    logspace.default,Scalar_Tensor,Scalar_Tensor_out,Tensor_Scalar,Tensor_Scalar_out,Tensor_Tensor,Tensor_Tensor_out,out
    eye.default,m,m_out,out scalar_tensor.default,out tril_indices.default,out triu_indices.default,out
    bartlett_window.default,out,periodic,periodic_out blackman_window.default,out,periodic,periodic_out
    hamming_window.default,out,periodic,periodic_alpha,periodic_alpha_beta,periodic_alpha_beta_out,periodic_alpha_out,periodic_out
    hann_window.default,out,periodic,periodic_out
    kaiser_window.default,beta,beta_out,out,periodic,periodic_out fft_fftfreq.default,out
    fft_rfftfreq.default,out
"""
_CONSTANT_LIKE = """
    zeros_like.default ones_like.default full_like.default new_zeros.default new_ones.default
    new_full.default
"""
_FILL = """
    zero.default fill.Scalar,Tensor
"""
_FILL_IN_PLACE = """
    zero_.default fill_.Scalar,Tensor
"""
_RANDOM = """
    rand.default,generator,generator_out,out randn.default,generator,generator_out,out
    randint.default,generator,generator_out,low,low_generator,low_generator_out,low_out,out
    randperm.default,generator,generator_out,out normal.float_float,float_float_out
"""
_RANDOM_LIKE = """
    rand_like.default,generator randn_like.default,generator
    randint_like.default,Tensor,Tensor_generator,generator,low_dtype,low_generator_dtype
"""
# The operand holds probabilities, rates or means.
_RANDOM_BY_VALUE = """
    bernoulli.default,Tensor poisson.default binomial.default
    normal.Tensor_Tensor,Tensor_float,float_Tensor multinomial.default _standard_gamma.default
    _sample_dirichlet.default
"""
_RANDOM_FUNCTIONAL = """
    bernoulli.p cauchy.default exponential.default geometric.default log_normal.default
    random.default,from,to uniform.default normal_functional.default
"""
_RANDOM_IN_PLACE = """
    bernoulli_.Tensor,float cauchy_.default exponential_.default geometric_.default log_normal_.default
    normal_.default random_.default,from,to uniform_.default
"""
_ONE_HOT = """
    one_hot.default
"""


def rows() -> Iterator[OpSpec]:
    """Empty, constant and random tensors.

    An op that fills its operand in place does not need the old contents, but it is not marked `shape_only`: the
    operand may be a part of a storage whose other bytes stay.
    """
    factory = Trait.FACTORY
    yield from declare(_EMPTY, factory, bytes_moved=no_bytes)
    yield from declare(_EMPTY_LIKE, factory, shape_only=(0,), bytes_moved=no_bytes)
    yield from declare(_CONSTANT, factory, bytes_moved=output_traffic)
    yield from declare(_CONSTANT_LIKE, factory, shape_only=(0,), bytes_moved=output_traffic)
    yield from declare(_FILL, factory, shape_only=(0,), bytes_moved=output_traffic)
    yield from declare(_FILL_IN_PLACE, Trait.ELEMENTWISE, bytes_moved=overwrite_traffic)
    yield from declare(_ONE_HOT, flops=per_output(1))
    yield from _random()


def _random() -> Iterator[OpSpec]:
    # A counter-based generator spends about ten integer operations on a number.
    factory, cost = Trait.FACTORY, per_output(10)
    yield from declare(_RANDOM, factory, rng=True, flops=cost, bytes_moved=output_traffic)
    yield from declare(
        _RANDOM_LIKE + _RANDOM_FUNCTIONAL,
        factory,
        rng=True,
        shape_only=(0,),
        flops=cost,
        bytes_moved=output_traffic,
    )
    yield from declare(_RANDOM_BY_VALUE, rng=True, flops=cost)
    yield from declare(
        _RANDOM_IN_PLACE, Trait.ELEMENTWISE, rng=True, flops=cost, bytes_moved=overwrite_traffic
    )
