"""Reads the facts of a call: in full to compare them in words, and fast to find that nothing has changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from neaptide.errors import CaptureError
from neaptide.frontends.guards.code_facts import CodeFacts
from neaptide.frontends.guards.group_facts import GroupFacts
from neaptide.frontends.guards.mode_facts import fast_modes, modes
from neaptide.frontends.guards.place_facts import Fact, PlaceFacts
from neaptide.frontends.guards.signature import Signature
from neaptide.frontends.guards.size_guard import SizeGuard
from neaptide.frontends.guards.tensor_facts import TensorFacts, geometry, hooks_of, storage_of
from neaptide.frontends.objects.batch_objects import Unseen, flatten
from neaptide.frontends.objects.contents import exact
from neaptide.frontends.objects.scalars import is_scalar
from neaptide.frontends.state.state_refusals import refuse_wrapper
from neaptide.frontends.state.step_slots import argument_name
from neaptide.frontends.state.step_state import StepState


class SignatureReader:
    """Reads the signature of a call; holds on to the places, so that a fact costs a fraction of a microsecond.

    Args:
        state: what was found.
        changing: names of Python numbers that are inputs of the program: of them only the type is a fact, as of what the
            step does not read.
        sizes: of dims that may vary; None where none may.
    """

    def __init__(
        self, state: StepState, changing: frozenset[str] = frozenset(), sizes: SizeGuard | None = None
    ) -> None:
        changing |= state.counted
        self._changing = changing | {argument_name(position) for position in state.unread_arguments}
        self._sizes = sizes
        self._tensors = TensorFacts(state)
        self._places = PlaceFacts(state, changing)
        self._code = CodeFacts(state)
        self._groups = GroupFacts(state, self._tensors, changing)
        self._modes: Any = None
        self._agreed: Signature | None = None

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Signature:
        """All facts of a call with these arguments, as things stand now.

        Raises:
            CaptureError: an argument that is neither made of tensors nor a plain value.
        """
        self._tensors.arm()
        return Signature(
            self._batch(args, kwargs),
            tuple(self._tensors.read()),
            tuple(self._places.scalars()),
            tuple(self._places.objects()),
            tuple(self._code.read()),
            tuple(self._groups.read()),
            modes(),
        )

    def agrees(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], signature: Signature) -> bool:
        """Whether a call has the facts of a signature; reads in full only where something looks different.

        Raises:
            CaptureError: an argument that is neither made of tensors nor a plain value.
        """
        if self._agreed is signature and self._unchanged():
            return self._batch(args, kwargs) == signature.batch
        if self.read(args, kwargs) != signature:
            self._agreed = None
            return False
        self._agreed = signature
        self._arm()
        return True

    def _unchanged(self) -> bool:
        parts = (self._tensors, self._places, self._code, self._groups)
        return all(part.unchanged() for part in parts) and fast_modes() == self._modes

    def _arm(self) -> None:
        for part in (self._tensors, self._places, self._code, self._groups):
            part.arm()
        self._modes = fast_modes()

    def _batch(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Fact, ...]:
        leaves, spec = flatten((args, dict(kwargs)))
        facts: list[Fact] = [("batch structure", spec)]
        first: dict[int, int] = {}
        of_state = self._tensors.named_storages()
        sizes = self._sizes
        binding = {} if sizes is None else sizes.binding(leaves)
        for position, leaf in enumerate(leaves):
            name = argument_name(position)
            if isinstance(leaf, torch.Tensor):
                refuse_wrapper(leaf, name)
                own = geometry(leaf) if sizes is None else sizes.geometry(position, leaf, binding)
                facts.append((name, own))
                if leaf.requires_grad:
                    facts += hooks_of(leaf, name)
                storage = storage_of(leaf)
                earlier = first.setdefault(storage, position)
                if storage in of_state:
                    facts.append((f"{name} shares bytes with", of_state[storage]))
                elif earlier != position:
                    facts.append((f"{name} shares bytes with", f"batch[{earlier}]"))
            elif is_scalar(leaf):
                facts.append((name, type(leaf) if name in self._changing else (type(leaf), exact(leaf))))
            elif type(leaf) is Unseen:
                facts.append((name, type(leaf.content)))
            else:
                raise CaptureError(
                    f"argument {position} of the step is a {type(leaf).__name__}",
                    why="its contents cannot be read anew at each call",
                    next_step="pass tensors and plain values, in lists, tuples, dicts, other mappings or dataclasses",
                )
        return tuple(facts) if sizes is None else (*facts, *sizes.facts(binding))
