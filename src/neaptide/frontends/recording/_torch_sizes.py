"""Private PyTorch names around symbolic sizes: symbols of a shape environment, and what a trace assumed of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from neaptide.frontends._torch_private import is_fake, new_fake, resolve
from neaptide.frontends.objects.places import Replacement

_SYMBOLIC_IN_CPP: tuple[Any, ...] = (
    torch.ops.aten.dropout.default,
    torch.ops.aten.matmul.default,
    torch.ops.aten.native_batch_norm.default,
)
_SHAPES = "torch.fx.experimental.symbolic_shapes"


def keeps_sizes() -> bool:
    """Whether the composite operations of this torch keep symbolic sizes; those of 2.11 take the example for some."""
    return torch.torch_version.TorchVersion(torch.__version__) >= "2.13"


def new_size(mode: Any, name: str, hint: int, low: int, high: int | None) -> torch.SymInt:
    """A size that a trace knows by its range only, and by an example where it has to branch: 2 or more, for torch takes 0
    and 1 for constants. No other symbol of the fake mode has the name; `high` is None for no largest size.
    """
    infinity = resolve("torch.utils._sympy.numbers", "int_oo")
    span = resolve("torch.utils._sympy.value_ranges", "ValueRanges")(low, infinity if high is None else high)
    environment = mode.shape_env
    source = resolve("torch._dynamo.source", "ConstantSource")(name)
    symbol = environment.create_symbol(
        hint,
        source=source,
        dynamic_dim=resolve(_SHAPES, "DimDynamic").DYNAMIC,
        constraint_dim=resolve(_SHAPES, "StrictMinMaxConstraint")(warn_only=False, vr=span),
        do_not_specialize_zero_one=True,
    )
    size: torch.SymInt = environment.create_symintnode(symbol, hint=hint, source=source)
    return size


@contextlib.contextmanager
def symbolic_kernels() -> Iterator[None]:
    """Composite operations keep symbolic sizes: their kernels in C++ would take the example for the size.

    Those of `_SYMBOLIC_IN_CPP` do keep them in C++, and in Python they are other operations than eager's.
    """
    taken = []
    for operation in _SYMBOLIC_IN_CPP:
        taken.append((operation, dict(operation.py_kernels)))
        operation.py_kernels.clear()
        operation._dispatch_cache.clear()
    try:
        with resolve("torch._dispatch.python", "enable_python_dispatcher")():
            yield
    finally:
        for operation, kernels in taken:
            operation.py_kernels.update(kernels)
            operation._dispatch_cache.clear()


def formula(number: Any) -> Any:
    """The sympy expression of a symbolic number, with all that the trace has learnt so far."""
    return number.node.expr


def is_backed(number: Any) -> bool:
    """Whether a symbolic number follows from sizes alone, and not from data."""
    node = number.node
    return bool(node.expr.free_symbols <= node.shape_env.backed_var_to_val.keys())


def example_of(item: Any) -> Any:
    """A size as it is in the call that is traced, a tensor with such sizes; anything else as it is."""
    if isinstance(item, (torch.SymInt, torch.SymFloat)):
        return item.node.hint if item.node.has_hint() else item
    if not isinstance(item, torch.Tensor) or item.layout is not torch.strided:
        return item
    geometry = (*item.shape, *item.stride())
    if all(type(number) is int for number in geometry) or not is_fake(item):
        return item
    numbers = [example_of(number) for number in geometry]
    if not all(isinstance(number, int) for number in numbers):
        return item
    shape, strides = numbers[: item.dim()], numbers[item.dim() :]
    return new_fake(item.fake_mode, shape, strides, item.dtype, item.device)  # type: ignore[attr-defined]


def symbol_of(size: torch.SymInt) -> Any:
    """The sympy symbol that `new_size` made, whatever the trace has learnt of it since."""
    return size.node._expr


def simplified(mode: Any, formula: Any) -> Any:
    """A formula with all symbols replaced that the trace found to be equal to something else."""
    return mode.shape_env.replace(formula)


def assumptions(mode: Any) -> list[Any]:
    """What a trace has taken for true of its sizes, as sympy formulas, in order."""
    return [guard.expr for guard in mode.shape_env.guards]


def sizes_noted(mode: Any, note: Callable[[int], None]) -> Iterator[Replacement]:
    """Call `note` with the position in `assumptions` of each new one, on the stack of the code that asks.

    Fake kernels are asked anew for each operation: with symbolic sizes, keeping a result costs more than it saves.
    """
    environment = mode.shape_env

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def evaluate(*args: Any, **kwargs: Any) -> Any:
            before = len(environment.guards)
            result = original(*args, **kwargs)
            for position in range(before, len(environment.guards)):
                note(position)
            return result

        return evaluate

    yield mode, "cache_enabled", lambda _enabled: False
    yield environment, "evaluate_expr", make


def sympy_integer(number: int) -> Any:
    """A number as sympy holds it."""
    return resolve("sympy", "Integer")(number)
