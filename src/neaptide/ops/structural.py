"""Ops that are not tensor kernels: loops, and arithmetic on host scalars.

Tracing a training step leaves Python numbers in the graph that are known only at run time, such as the bias
correction of Adam or a dynamic batch size. Their arithmetic is recorded as calls of Python functions. `HOST_OPS` gives
each of those functions its op name; a frontend goes from function to name, a lowering back.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from neaptide.errors import UnknownOp
from neaptide.ir.nodes import ADD_OP, BORDER_OP, COPY_OP, LOOP_OP, PUT_OP
from neaptide.ir.registry import OpSpec, Trait, no_bytes
from neaptide.ops.axes.forms import pointwise
from neaptide.ops.byte_sizes import output_traffic, traffic
from neaptide.ops.fused import FUSED_OP

_OPERATORS = "abs add eq floordiv ge gt invert le lshift lt mod mul ne neg not_ pos pow rshift sub truediv and_ or_ xor"
_MATH = "acos asin atan ceil cos cosh exp floor isfinite isinf isnan log log2 log10 pow sin sinh sqrt tan tanh trunc"
_SYM = "float int ite max min not sum fresh_size"
_SYM_PRIVATE = "acos asin atan cos cosh log2 sin sinh sqrt tan tanh"
_BUILTINS = "abs bool divmod float int max min pow round sum"


def _host_ops() -> Iterator[tuple[str, str]]:
    for name in _OPERATORS.split():
        yield f"_operator.{name}", f"host.{name.rstrip('_')}"
    for name in _MATH.split():
        yield f"math.{name}", f"host.math_{name}"
    for name in _SYM.split():
        yield f"torch.sym_{name}", f"host.sym_{name}"
    for name in _SYM_PRIVATE.split():
        yield f"torch._sym_{name}", f"host.sym_{name}"
    for name in _BUILTINS.split():
        yield f"builtins.{name}", f"host.builtin_{name}"


HOST_OPS: Mapping[str, str] = MappingProxyType(dict(_host_ops()))
"""From `module.qualname` of a Python function to op name: `_operator.mul` is `host.mul`, `math.sqrt` is
`host.math_sqrt`, `torch._sym_sqrt` is `host.sym_sqrt`, `builtins.round` is `host.builtin_round`. One to one."""

HOST_FUNCTIONS: Mapping[str, str] = MappingProxyType({op: function for function, op in HOST_OPS.items()})
"""The way back: op name to `module.qualname`."""


CONSTANT_OP = "neaptide.constant"
"""A literal tensor: arguments are its numbers (flat), shape, dtype and device. One number stands for all elements."""


KERNELS: Mapping[str, str] = MappingProxyType(
    {COPY_OP: "aten.clone.default", PUT_OP: "aten.copy_.default", ADD_OP: "aten.add_.Tensor"}
)
"""The operations of the framework that do what loops do with their parts and results."""


def host_function(op: str) -> Callable[..., Any]:
    """The Python function of a host op; numbers are plain at run time, so `torch._sym_sqrt` is `math.sqrt`."""
    path = HOST_FUNCTIONS.get(op, "")
    if path.startswith("torch._sym_"):
        path = f"math.{path.removeprefix('torch._sym_')}"
    module, _, name = path.rpartition(".")
    found = getattr(importlib.import_module(module), name, None) if module else None
    if not callable(found):
        raise UnknownOp(f"there is no function {path or op}", why=f"{op} stands for it")
    function: Callable[..., Any] = found
    return function


def rows() -> Iterator[OpSpec]:
    """The loop op (its cost is its body's), what loops do with their results, literal tensors, host functions."""
    yield OpSpec(name=LOOP_OP)
    copies, written = frozenset({Trait.COPY}), traffic((0,))
    yield OpSpec(name=COPY_OP, traits=copies, axes=pointwise((0,)))
    yield OpSpec(name=PUT_OP, traits=copies, writes=(0,), bytes_moved=written, axes=pointwise())
    yield OpSpec(
        name=ADD_OP,
        traits=frozenset({Trait.ELEMENTWISE}),
        writes=(0,),
        flops=lambda call: call.inputs()[0].numel,
        bytes_moved=lambda call: call.inputs()[0].nbytes * 3,
        axes=pointwise((1,)),  # each part adds its own term to what is handed over whole
    )
    # Gradients come from the caller: they cannot be had a second time.
    yield OpSpec(name=BORDER_OP, writes=(1,), deterministic=False, bytes_moved=no_bytes)
    yield OpSpec(name=FUSED_OP)  # what one overwrites, its node says
    yield OpSpec(name=CONSTANT_OP, traits=frozenset({Trait.FACTORY}))
    for op in HOST_FUNCTIONS:
        yield OpSpec(name=op, traits=frozenset({Trait.HOST_SCALAR}), bytes_moved=no_bytes)
    # The state of a random generator is read, set, and made of a seed: each takes its place in the order of draws.
    yield OpSpec(name="neaptide.get_rng_state.default", rng=True, bytes_moved=output_traffic)
    yield OpSpec(name="neaptide.set_rng_state.default", rng=True)
    yield OpSpec(name="neaptide.manual_seed.default", rng=True)
