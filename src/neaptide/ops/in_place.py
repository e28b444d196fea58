"""Which operands a result may lie on top of: kernels that read each element before they write it, and only then.

The claim of a row: called with its own `out` exactly on top of that operand (same address, shape, strides and dtype),
or in its in-place form, the kernel computes the same bits as the functional call. Only operations are listed that have
such a form of their own; an `out` overload that PyTorch generates computes into fresh bytes and copies, which saves
nothing. Tests run every row.

What is missing here is missing on purpose: contractions and convolutions read an operand many times; softmax, norms
and reductions take several passes over it; gathers, pools and rearrangements read elements other than those they
write; dropout and other random kernels have no form that writes where it is told; `soft_margin_loss` and
`log_sigmoid` are compositions that read an operand again after the first write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from neaptide.ir.registry import OpRegistry, OpSpec
from neaptide.ops.table import overloads

# Arguments by position.
_FIRST = """
    abs absolute acos acosh add.Scalar angle asin asinh atan atanh bitwise_and.Scalar
    bitwise_left_shift.Tensor_Scalar bitwise_not bitwise_or.Scalar bitwise_right_shift.Tensor_Scalar
    bitwise_xor.Scalar ceil celu clamp clamp_max clamp_min clip conj_physical copysign.Scalar cos cosh deg2rad
    digamma div.Scalar,Scalar_mode divide.Scalar,Scalar_mode elu eq.Scalar erf erfc erfinv exp exp2 expm1 fix
    float_power.Tensor_Scalar floor floor_divide.Scalar fmod.Scalar frac ge.Scalar gelu greater.Scalar
    greater_equal.Scalar gt.Scalar hardshrink hardsigmoid hardswish hardtanh i0 isneginf isposinf le.Scalar
    leaky_relu less.Scalar less_equal.Scalar lgamma log log10 log1p log2 logical_not logit lt.Scalar
    masked_fill.Scalar,Tensor mish mul.Scalar multiply.Scalar nan_to_num ne.Scalar neg negative
    not_equal.Scalar pow.Tensor_Scalar rad2deg reciprocal relu relu6 remainder.Scalar round,decimals rsqrt
    selu sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink special_bessel_j0 special_bessel_j1
    special_entr special_erf special_erfcx special_expit special_i0e special_i1 special_i1e special_log_ndtr
    special_ndtr special_ndtri special_xlog1py.other_scalar special_zeta.other_scalar sqrt square sub.Scalar
    subtract.Scalar tan tanh threshold tril triu true_divide.Scalar trunc xlogy.Scalar_Other
"""

_SECOND = """
    float_power.Scalar polygamma pow.Scalar special_xlog1py.self_scalar special_zeta.self_scalar
    xlogy.Scalar_Self
"""

_FIRST_TWO = """
    add.Tensor atan2 binary_cross_entropy bitwise_and.Tensor bitwise_left_shift.Tensor bitwise_or.Tensor
    bitwise_right_shift.Tensor bitwise_xor.Tensor clamp_max.Tensor clamp_min.Tensor copysign.Tensor
    div.Tensor,Tensor_mode divide.Tensor,Tensor_mode eq.Tensor float_power.Tensor_Tensor floor_divide fmax
    fmin fmod.Tensor gcd ge.Tensor gelu_backward greater.Tensor greater_equal.Tensor gt.Tensor
    hardshrink_backward hardsigmoid_backward hardtanh_backward heaviside huber_loss hypot igamma igammac lcm
    ldexp.Tensor le.Tensor leaky_relu_backward lerp.Scalar less.Tensor less_equal.Tensor logaddexp logaddexp2
    logical_and logical_or logical_xor logit_backward lt.Tensor max.other maximum min.other minimum mse_loss
    mul.Tensor multiply.Tensor ne.Tensor nextafter not_equal.Tensor pow.Tensor_Tensor remainder.Tensor
    sigmoid_backward silu_backward smooth_l1_loss softplus_backward softshrink_backward special_xlog1py
    special_zeta sub.Tensor subtract.Tensor tanh_backward threshold_backward true_divide.Tensor xlogy.Tensor
"""

_FIRST_THREE = """
    addcdiv addcmul binary_cross_entropy_backward clamp.Tensor clip.Tensor huber_loss_backward lerp.Tensor
    mse_loss_backward smooth_l1_loss_backward where.self
"""

_FIRST_AND_SIXTH = """
    elu_backward
"""

_TABLE: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        overload.name: positions
        for text, positions in (
            (_FIRST, (0,)),
            (_SECOND, (1,)),
            (_FIRST_TWO, (0, 1)),
            (_FIRST_THREE, (0, 1, 2)),
            (_FIRST_AND_SIXTH, (0, 5)),
        )
        for overload in overloads(text)
    }
)


def with_in_place(rows: Iterable[OpSpec]) -> Iterator[OpSpec]:
    """The rows, told which operands their results may overwrite."""
    for row in rows:
        positions = _TABLE.get(row.name, ())
        yield replace(row, in_place=positions) if positions else row


def listed() -> tuple[str, ...]:
    """Names of all operations that may overwrite an operand, ascending."""
    return tuple(sorted(_TABLE))


# What the overload and its keyword are called where the name of the operation's own overload is no part of it.
_PLAIN: Final = ("out", "grad_input")
# Overloads of which that is so.
_OF_PLAIN: Final = ("default", "Tensor", "self")


@dataclass(frozen=True, slots=True)
class InPlaceForm:
    """An operation that computes what another one does, on top of an operand.

    Attributes:
        op: registry name.
        keyword: argument that names the operand once more; empty where it is the first argument that is overwritten.
    """

    op: str
    keyword: str = ""


def in_place_form(registry: OpRegistry, op: str, position: int) -> InPlaceForm | None:
    """The operation that does what `op` does on top of its operand at a position; None where there is none.

    Args:
        registry: holds the operations.
        op: registry name of a functional operation.
        position: of the operand; one that `OpSpec.in_place` does not name has no form.

    >>> from neaptide.ops import registry
    >>> in_place_form(registry(), "aten.add.Tensor", 0), in_place_form(registry(), "aten.add.Tensor", 1)
    (InPlaceForm(op='aten.add_.Tensor', keyword=''), InPlaceForm(op='aten.add.out', keyword='out'))
    """
    known = registry.find(op)
    if known is None or position not in known.in_place:
        return None
    base, _, overload = op.rpartition(".")
    first = registry.find(f"{base}_.{overload}")
    if position == 0 and first is not None and first.writes == (0,):
        return InPlaceForm(first.name)
    for name, keyword in _spellings(overload):
        spec = registry.find(f"{base}.{name}")
        if spec is not None and spec.writes == (keyword,):
            return InPlaceForm(spec.name, keyword)
    return None


def _spellings(overload: str) -> Iterator[tuple[str, str]]:
    """Names of the overload that takes its result's place, and of its keyword; the likeliest first."""
    if overload != "default":
        yield f"{overload}_out", "out"
    if overload in _OF_PLAIN:
        yield from ((name, name) for name in _PLAIN)
    if overload == "Tensor_mode":
        yield "out_mode", "out"
