"""Private PyTorch names of this room, resolved in one place.

Checked against torch 2.11 and 2.13.
"""

from __future__ import annotations

from typing import Any

from neaptide.errors import UnsupportedTorch


def has_argument(operation: Any, name: str) -> bool:
    """Whether the schema of an operation has an argument of that name."""
    return any(argument.name == name for argument in _schema(operation).arguments)


def result_count(operation: Any) -> int:
    """How many results an operation returns; a list counts as one."""
    return len(_schema(operation).returns)


def returns_tensors(operation: Any) -> bool:
    """Whether any result is a tensor or a list of them."""
    return any("Tensor" in str(result.type) for result in _schema(operation).returns)


def _schema(operation: Any) -> Any:
    schema = getattr(operation, "_schema", None)
    if schema is None:
        raise UnsupportedTorch(
            f"{operation} has no schema",
            why="neaptide needs it to know the arguments and results of an operation",
            next_step="install a torch between 2.11 and 2.15",
        )
    return schema
