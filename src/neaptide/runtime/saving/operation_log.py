"""What the operations of a run made, as short numbers, to find the first that another run does not have."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from neaptide.frontends.source.users_code import is_library_file
from neaptide.runtime._torch_private import EagerMode, changes_inputs
from neaptide.runtime.saving.digests import digest

_NO_BITS: Final = ("aten.empty", "aten.new_empty")
"""Operations whose results hold anything."""


class OperationLog(EagerMode):
    """A mode that notes of each operation its name, the user's line, and what it made or wrote.

    Attributes:
        rows: (name, line, digests) in the order in which they ran; views are left out.
    """

    only_observes = True

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, str, tuple[Any, ...]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator, and note it."""
        outputs = super().__torch_dispatch__(func, types, args, kwargs)
        if _is_view(func) or str(func).startswith(_NO_BITS):
            return outputs
        made = pytree.tree_leaves((outputs, args, kwargs) if changes_inputs(func) else outputs)
        found = tuple(digest(leaf) for leaf in made if isinstance(leaf, torch.Tensor))
        self.rows.append((str(func), _users_line(), found))
        return outputs


def first_difference(rows: Iterable[tuple[str, str, tuple[Any, ...]]], others: OperationLog) -> str | None:
    """The first operation of a run that made what no operation of another run made, in words; None where there is none."""
    known = {one for _, _, made in others.rows for one in made}
    for name, line, made in rows:
        if any(one not in known for one in made):
            return f"{name} at {line}" if line else name
    return None


def _is_view(func: Any) -> bool:
    schema = getattr(func, "_schema", None)
    return schema is not None and any(
        result.alias_info is not None and not result.alias_info.is_write for result in schema.returns
    )


def _users_line() -> str:
    frame = sys._getframe(2)  # noqa: SLF001 - there is no other way to the caller
    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if not is_library_file(name) and "/neaptide/" not in name and not name.startswith("<"):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
