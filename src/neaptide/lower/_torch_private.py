"""Private PyTorch names of this room, resolved in one place.

Checked against torch 2.11 to 2.15.
"""

from __future__ import annotations

from typing import Any

import torch

from neaptide.errors import UnsupportedTorch


def result_count(operation: Any) -> int:
    """How many results an operation returns; a list counts as one."""
    return len(_schema(operation).returns)


def returns_tensors(operation: Any) -> bool:
    """Whether any result is a tensor or a list of them."""
    return any("Tensor" in str(result.type) for result in _schema(operation).returns)


def is_overload(operation: Any) -> bool:
    """Whether it is one overload of an operation of torch."""
    return isinstance(operation, torch._ops.OpOverload)


def overloads(operation: Any) -> list[Any]:
    """All overloads of the operation of which one is given."""
    packet = operation._overloadpacket
    return [getattr(packet, name) for name in packet.overloads()]


def overload_name(operation: Any) -> str:
    """What follows the name of the operation: `out` in `aten.mm.out`."""
    return str(operation._overloadname)


def plain_arguments(operation: Any) -> list[tuple[str, str]]:
    """Name and type of the arguments that no result is written to, in order."""
    return [(a.name, str(a.type)) for a in _schema(operation).arguments if not _is_result(a)]


def result_arguments(operation: Any) -> tuple[str, ...]:
    """Names of the arguments that single results are written to, in order; none where one is a list."""
    found = [argument for argument in _schema(operation).arguments if _is_result(argument)]
    return tuple(a.name for a in found) if all(str(a.type) == "Tensor" for a in found) else ()


def _is_result(argument: Any) -> bool:
    return bool(getattr(argument, "is_out", False))


def _schema(operation: Any) -> Any:
    schema = getattr(operation, "_schema", None)
    if schema is None:
        raise UnsupportedTorch(
            f"{operation} has no schema",
            why="neaptide needs it to know the arguments and results of an operation",
            next_step="install a torch between 2.11 and 2.15",
        )
    return schema
