"""Gradient scalers during a trace: an update that a scaler skips is one whose result is not taken.

Eager asks whether a gradient is infinite and leaves `optimizer.step()` out if so. The program always computes the
update and takes, by the same flag, the new tensors or the old ones. What the step makes anew (state of a first step,
Python counts) is handed back together with the flag, and is written only where the update was not skipped.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from neaptide.errors import CaptureError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.dispatch.recorder import Recorder
from neaptide.frontends.recording.recording import Notes, Record
from neaptide.frontends.state.step_state import StepState
from neaptide.frontends.watch.optimizer_copies import OptimizerCopies

Key = tuple[Any, ...]


class _Taken(NamedTuple):
    """A tensor that an update writes: the record of its old content, and those of selecting."""

    storage: int
    old: Record
    selection: tuple[Record, ...]


class ScaledUpdates:
    """The gradient scalers of a step while it is traced.

    Attributes:
        skipped: by label of an optimizer that a scaler stepped, the flag that is not zero where it was skipped.
    """

    def __init__(
        self, state: StepState, optimizers: OptimizerCopies, recorder: Recorder, notes: Notes
    ) -> None:
        self._state, self._optimizers = state, optimizers
        self._recorder, self._notes = recorder, notes
        self._around: dict[str, tuple[dict[Key, Any], dict[Key, Any]]] = {}
        self._taken: list[_Taken] = []
        self.skipped: dict[str, torch.Tensor] = {}

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Let scalers select by data instead of branching; refuse one that is left between `step` and `update`."""
        scalers = self._state.scalers
        held = {name: getattr(scaler, private.SCALER_NOTES) for name, scaler in scalers.items()}
        try:
            for name, scaler in scalers.items():
                if held[name]:
                    raise _unfinished(name, "before the step began")
                setattr(scaler, private.SCALER_NOTES, defaultdict(held[name].default_factory))
                vars(scaler)["_maybe_opt_step"] = self._step
            yield
            for name, scaler in scalers.items():
                if getattr(scaler, private.SCALER_NOTES):
                    raise _unfinished(name, "when the step is over")
        finally:
            for name, scaler in scalers.items():
                vars(scaler).pop("_maybe_opt_step", None)
                setattr(scaler, private.SCALER_NOTES, held[name])

    def _step(
        self, optimizer: torch.optim.Optimizer, notes: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Stands in for what decides whether to step."""
        flags = list(notes["found_inf_per_device"].values())
        flag = flags[0] if len(flags) == 1 else sum(f.to(flags[0].device) for f in flags)
        records = self._recorder.recording.records
        with torch.no_grad(), self._notes.noted(phase="optimizer"):
            found = self._tensors(optimizer)
            skips = {device: (flag != 0).to(device) for device in {tensor.device for tensor in found}}
            old = [(tensor, tensor.clone()) for tensor in found]
        began = len(records)
        before = dict(self._optimizers.contents())
        result = optimizer.step(*args, **kwargs)
        after = dict(self._optimizers.contents())
        written = {key for record in records[began:] for r in record.written() for key in r.storages()}
        with torch.no_grad(), self._notes.noted(phase="optimizer"):
            for tensor, content in old:
                if _storage(tensor) in written:
                    ended = len(records)
                    tensor.copy_(torch.where(skips[tensor.device], content, tensor))
                    kept = self._recorder.record_of(content)
                    assert kept is not None
                    self._taken.append(_Taken(_storage(tensor), kept, tuple(records[ended:])))
        # An optimizer may hand on to others, whose state is then written, and skipped, as well.
        changed = {key[1] for key in after.keys() | before.keys() if after.get(key) is not before.get(key)}
        for label, known in self._state.optimizers.items():
            if known is optimizer or label in changed:
                self._around[label] = before, after
                self.skipped[label] = flag
        return result

    def _tensors(self, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
        """What an update may write."""
        tensors = [slot.current() for slot in self._state.tensors]
        tensors += [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [t.grad for t in tensors if t.is_leaf and t.grad is not None]
        state = [content for _, content in self._optimizers.contents() if isinstance(content, torch.Tensor)]
        return list({id(t): t for t in (*tensors, *gradients, *state)}.values())

    def check_writes(self) -> None:
        """Refuse what the step writes of a scaled optimizer outside of its update: of what it wrote, nothing is taken."""
        found = self._optimizers.entry_contents
        left = dict(self._optimizers.contents())
        for label, (before, after) in self._around.items():
            for key, content in left.items():
                if key[1] != label:
                    continue
                if before.get(key) is not found.get(key) or content is not after.get(key):
                    raise CaptureError(
                        f"the step writes {'.'.join(map(str, key[1:]))} outside of {label}.step()",
                        why="a gradient scaler may skip the update, and what it writes, but not this",
                        next_step="write it outside the step",
                    )

    def settle(self) -> None:
        """Keep an old tensor from right before it is written, and select right after its last use in the update.

        As traced, all are kept from the beginning of the update to its end, which eager does not do. O(records).
        """
        if not self._taken:
            return
        recording = self._recorder.recording
        ours = {record for taken in self._taken for record in (taken.old, *taken.selection)}
        others = [record for record in recording.records if record not in ours]
        position = {record: k for k, record in enumerate(recording.records)}
        uses: dict[int, list[Record]] = defaultdict(list)
        for record in others:
            for key in {key for r in (record, *record.operands()) for key in r.storages()}:
                uses[key].append(record)
        before: dict[Record, list[Record]] = defaultdict(list)
        behind: dict[Record, list[Record]] = defaultdict(list)
        for taken in self._taken:
            begin, end = position[taken.old], position[taken.selection[0]]
            within = [record for record in uses[taken.storage] if begin < position[record] < end]
            before[within[0]].append(taken.old)
            behind[within[-1]] += taken.selection
        recording.records = [part for record in others for part in (*before[record], record, *behind[record])]


def _storage(tensor: torch.Tensor) -> int:
    return private.storage_key(tensor.untyped_storage())


def _unfinished(name: str, when: str) -> CaptureError:
    return CaptureError(
        f"the gradient scaler {name} is between unscale_ or step and update {when}",
        why="what it notes in between is Python state, which a program does not write",
        next_step="call scaler.unscale_, scaler.step and scaler.update within the step",
    )
