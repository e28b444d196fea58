"""Eager with each number rounded a little differently: what that changes, another order of sums may change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from neaptide.runtime._torch_private import EagerMode, changes_inputs, storage_identity

_BITS: Final = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}
# Odd, and its upper bits are mixed (Fibonacci hashing, Knuth, The Art of Computer Programming, 6.4).
_MIXING: Final = 0x9E3779B97F4A7C15 - 2**64
_UPPER: Final = 40
_WAYS: Final = 3


class PerturbedRoundings(EagerMode):
    """Changes the numbers that operations make by one rounding of their dtype: up, down or not at all.

    To first order that is what rounding does to a program: the error of each operation is carried to the results, and
    magnified on the way, as that of every other one (Monte Carlo arithmetic: Parker, Pierce and Eggert, IEEE Computing in
    Science and Engineering 2(4), 2000). Which way a number goes follows from its bits, so equal numbers of a result stay equal
    and choices between them stay as they are. Left alone are:

    * what follows from no numbers of the caller's, as positions do: it is the same in every order of sums;
    * numbers that are handed on rather than made, as the largest of several is;
    * results without bytes of their own, and what is overwritten in place;
    * results that are whole numbers throughout, such as counts and masks, and numbers that could become infinite.
    """

    def __init__(self, sample: int) -> None:
        super().__init__()
        self._salt = sample * 2**32
        # Storages made here of no numbers of the caller's. An address that is used again is told anew when it is made.
        self._fixed: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = super().__torch_dispatch__(func, types, args, kwargs)
        given = list(_rounded((args, kwargs)))
        shared = {_storage(tensor) for tensor in given}
        is_fixed = shared <= self._fixed
        if not is_fixed and changes_inputs(func):
            self._fixed -= shared
        for tensor in _rounded(made):
            if _storage(tensor) in shared:
                continue
            if is_fixed:
                self._fixed.add(_storage(tensor))
                continue
            self._fixed.discard(_storage(tensor))
            self._salt += 1
            if not _is_handed_on(tensor, given):
                perturb(tensor, self._salt)
        return made


def perturb(tensor: torch.Tensor, salt: int) -> None:
    """Change numbers of a tensor by one rounding, in place. O(elements)."""
    numbers = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    repeats = any(
        step == 0 and extent > 1 for step, extent in zip(numbers.stride(), numbers.shape, strict=True)
    )
    if numbers.dtype not in _BITS or numbers.numel() == 0 or repeats:
        return
    if bool((numbers == numbers.round()).all()):
        return
    told = torch.finfo(numbers.dtype)
    mixed = (numbers.view(_BITS[numbers.dtype]).to(torch.int64) + salt) * _MIXING
    ways = torch.remainder(mixed >> _UPPER, _WAYS) - 1
    ways = ways * (numbers.abs() < told.max / 4)
    numbers.mul_(1 + told.eps * ways.to(numbers.dtype))


def perturbed_copy(tree: Any, sample: int) -> Any:
    """Tensors in a tree, copied and perturbed; what else is in it is handed on."""

    def copied(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
            return leaf
        made = leaf.detach().clone().requires_grad_(leaf.requires_grad)
        with torch.no_grad():
            perturb(made, sample)
        return made

    return pytree.tree_map(copied, tree)


def _is_handed_on(made: torch.Tensor, given: list[torch.Tensor]) -> bool:
    """Whether an operand has the largest or the smallest number of a result, and that is not zero, at its own end."""
    if made.is_complex() or not made.numel():
        return False
    low, high = made.aminmax()
    for tensor in given:
        if tensor.dtype is made.dtype and tensor.numel():
            least, most = tensor.aminmax()
            is_end = ((low == least) & (low != 0)) | ((high == most) & (high != 0))
            # A single number may be any one of them, as a median is.
            if bool(is_end) or (made.numel() == 1 and bool(((tensor == low) & (low != 0)).any())):
                return True
    return False


def _rounded(tree: Any) -> Iterator[torch.Tensor]:
    for leaf in pytree.tree_leaves(tree):
        is_dense = isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided
        if is_dense and not leaf.is_meta and (leaf.dtype in _BITS or leaf.is_complex()):
            yield leaf


def _storage(tensor: torch.Tensor) -> int:
    return storage_identity(tensor.untyped_storage())
