"""Short numbers that tell whether tensors have the same bits, so that none has to be kept to be compared."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from neaptide.copy_engines.file_copy_engine import memory_of
from neaptide.frontends.objects.batch_objects import leaves_of
from neaptide.frontends.source.users_code import is_library_file
from neaptide.frontends.state.step_state import StepState
from neaptide.runtime._torch_private import EagerMode, changes_inputs

Digests = dict[str, tuple[Any, ...]]
_PART_BYTES: Final = 1 << 20


def digest(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Of dtype, shape and all bits in the order of the indices. Copies of parts take at most about 1 MiB at once.

    Two tensors that differ have the same digest by a chance of one in four billion.
    """
    told = str(tensor.dtype), tuple(tensor.shape)
    if tensor.layout is not torch.strided or tensor.is_meta:
        return told
    check = 0
    for part in _parts(tensor.detach()):
        here = part.resolve_conj().resolve_neg().contiguous().cpu()
        start = here.storage_offset() * here.element_size()
        check = zlib.crc32(memory_of(here.untyped_storage())[start : start + here.nbytes], check)
    return *told, check


def state_digests(state: StepState) -> Digests:
    """Of all tensors that a step works on, with their gradients and what optimizers keep, and as autograd sees them."""
    found: Digests = {}
    names = {}
    for slot in (*state.tensors, *state.unused):
        tensor = slot.current()
        names[id(tensor)] = slot.name
        found[slot.name] = as_user_sees(tensor)
        if tensor.is_leaf and tensor.grad is not None:
            found[f"{slot.name}.grad"] = as_user_sees(tensor.grad)
    for label, optimizer in state.optimizers.items():
        for parameter, entries in optimizer.state.items():
            for key, entry in entries.items():
                name = f"{label}.state[{names.get(id(parameter), 'a parameter')}].{key}"
                found[name] = as_user_sees(entry) if isinstance(entry, torch.Tensor) else (repr(entry),)
    return found


def result_digests(result: Any) -> Digests:
    """Of the tensors and numbers that a step returned."""
    return {
        f"result {position}": as_user_sees(leaf) if isinstance(leaf, torch.Tensor) else (repr(leaf),)
        for position, leaf in enumerate(leaves_of(result))
        if isinstance(leaf, (torch.Tensor, float, int))
    }


def as_user_sees(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The digest, with what autograd knows of the tensor."""
    return *digest(tensor), tensor.requires_grad, tensor.is_leaf, tensor.grad_fn is None


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """A tensor whole where no copy of it is needed or the copy is small; else row by row."""
    is_here = (
        tensor.device.type == "cpu" and tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())
    )
    if is_here or tensor.nbytes <= _PART_BYTES or tensor.dim() == 0:
        yield tensor
        return
    if tensor.device.type != "cpu" and tensor.is_contiguous():
        yield from torch.split(tensor.view(-1), _PART_BYTES // tensor.element_size())
        return
    for row in tensor.unbind(0):
        yield from _parts(row)


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
