"""Optimizers during a trace: groups and state made of fake twins, the user's own put back afterwards."""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from neaptide.errors import CaptureError
from neaptide.frontends.notes import Notes
from neaptide.frontends.step_slots import HOST_RATE_KEYS, EntryPattern, TensorSpec, observation_name
from neaptide.frontends.step_state import StepState
from neaptide.frontends.trace_errors import HostEffectError, location, users_line
from neaptide.frontends.trace_watch import find_line

Twins = Mapping[tuple[Any, ...], torch.Tensor]


class OptimizerTwins:
    """The optimizers of a step while it is traced.

    Args:
        state: what was found, with the user's tensors in their places.
        entry: which optimizer state exists when the step begins.
    """

    def __init__(self, state: StepState, entry: EntryPattern) -> None:
        self._state = state
        self._entry = entry
        self._names = {id(slot.current()): slot.name for slot in state.tensors}
        self._original = {k: (o.param_groups, o.state) for k, o in state.optimizers.items()}
        # What torch itself notes on an optimizer: that `step` was called, for the order of schedulers.
        self._notes = {
            k: {n: c for n, c in vars(o).items() if n[0] == "_"} for k, o in state.optimizers.items()
        }
        self._groups: dict[str, list[dict[str, Any]]] = {}
        self._steps = 0

    @contextlib.contextmanager
    def noted(self, notes: Notes) -> Iterator[None]:
        """Note the optimizer phase, and the gradients as they are when `step` begins."""
        had_step = {label: vars(o).get("step") for label, o in self._state.optimizers.items()}
        handles = [
            o.register_step_pre_hook(functools.partial(self._observe, notes))
            for o in self._state.optimizers.values()
        ]
        for optimizer in self._state.optimizers.values():
            optimizer.step = self._noted_step(optimizer, notes)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            for label, optimizer in self._state.optimizers.items():
                if had_step[label] is None:
                    del vars(optimizer)["step"]
                else:
                    vars(optimizer)["step"] = had_step[label]

    def put_back(self) -> None:
        """Give the optimizers their own groups and state again."""
        for label, optimizer in self._state.optimizers.items():
            optimizer.param_groups, optimizer.state = self._original[label]
            attributes = vars(optimizer)
            for name in [n for n in attributes if n[0] == "_" and n not in self._notes[label]]:
                del attributes[name]
            attributes.update(self._notes[label])

    def fill(self, twins: Twins) -> None:
        """Make groups and state of the twins."""
        for label, optimizer in self._state.optimizers.items():
            original_groups, original_state = self._original[label]
            groups = [self._group(label, i, group, twins) for i, group in enumerate(original_groups)]
            self._groups[label] = [dict(group) for group in groups]
            optimizer.param_groups = groups
            optimizer.state = defaultdict(dict)
            for owner, name, key in self._entry.optimizer_state:
                if owner == label:
                    optimizer.state[twins["tensor", name]][key] = twins["state", label, name, key]
            for parameter, entries in original_state.items():
                name = self._names.get(id(parameter), "")
                for key, content in entries.items():
                    if name and not isinstance(content, torch.Tensor):
                        optimizer.state[twins["tensor", name]][key] = content

    def _group(self, label: str, index: int, group: dict[str, Any], twins: Twins) -> dict[str, Any]:
        copy = dict(group)
        copy["params"] = [self._twin_of(p, twins) for p in group["params"]]
        if "foreach" in copy and not copy.get("fused"):
            copy["foreach"] = False  # one op over all gradients would keep them all alive at once
        for key in HOST_RATE_KEYS:
            if ("rate", label, index, key) in twins:
                rate = twins["rate", label, index, key]
                # Fused kernels take a plain float or a tensor, but no number known only at run time.
                as_tensor = isinstance(group[key], torch.Tensor) or copy.get("fused")
                copy[key] = rate if as_tensor else rate.item()
        return copy

    def _twin_of(self, parameter: torch.Tensor, twins: Twins) -> torch.Tensor:
        name = self._names.get(id(parameter))
        # A place inside param_groups holds its twin already when the parameter is found only there.
        return twins["tensor", name] if name is not None else parameter

    def collect(
        self, twins: Twins, new: Callable[[str, tuple[Any, ...], torch.Tensor], None]
    ) -> dict[tuple[str, str, str], TensorSpec]:
        """The state that exists now; `new(name, key, tensor)` is called for what the step made or replaced.

        Raises:
            CaptureError: a hyper-parameter or a count that the step keeps in Python.
        """
        found: dict[tuple[str, str, str], TensorSpec] = {}
        names = {id(twins["tensor", slot.name]): slot.name for slot in self._state.tensors}
        for label, optimizer in self._state.optimizers.items():
            self._refuse_changed_groups(label, optimizer)
            before = {self._names.get(id(p)): entries for p, entries in self._original[label][1].items()}
            for parameter, entries in optimizer.state.items():
                name = names[id(parameter)]
                for key, content in entries.items():
                    if isinstance(content, torch.Tensor):
                        found[label, name, key] = TensorSpec.of(content)
                        if content is not twins.get(("state", label, name, key)):
                            new(f"{label}.state.{name}.{key}", (label, name, key), content)
                    elif before.get(name, {}).get(key, _ABSENT) is not content:
                        raise CaptureError(
                            f"the optimizer {type(optimizer).__name__} keeps {key!r} in Python",
                            why="it would be frozen into the program",
                            next_step="use an optimizer that keeps it in a tensor (SGD, Adam, AdamW do)",
                        )
        return found

    def _refuse_changed_groups(self, label: str, optimizer: torch.optim.Optimizer) -> None:
        for index, (now, then) in enumerate(zip(optimizer.param_groups, self._groups[label], strict=False)):
            changed = [k for k in {**then, **now} if now.get(k, _ABSENT) is not then.get(k, _ABSENT)]
            if changed:
                raise HostEffectError(
                    f"the step writes {label}.param_groups[{index}][{changed[0]!r}]",
                    where=find_line(str(changed[0]), self._state.codes),
                    why="it would be written once, at capture, and never again",
                    next_step="set it outside the step; a new learning rate needs no new plan",
                )
        if len(optimizer.param_groups) != len(self._groups[label]):
            raise CaptureError(
                f"the step adds a parameter group to {label}", next_step="add it before the first step"
            )

    def _observe(self, notes: Notes, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        """Mark the gradients as they are when the update begins, after the user's own hooks."""
        names = {id(slot.current()): slot.name for slot in self._state.tensors}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and id(parameter) in names:
                    with notes.noted(observed=observation_name(names[id(parameter)], self._steps)):
                        parameter.grad.detach()
        self._steps += 1

    def _noted_step(self, optimizer: torch.optim.Optimizer, notes: Notes) -> Callable[..., Any]:
        inner = optimizer.step

        def step(closure: Callable[[], Any] | None = None) -> Any:
            if closure is not None or isinstance(optimizer, torch.optim.LBFGS):
                raise CaptureError(
                    "optimizer.step is called with a closure",
                    where=location(users_line(traceback.extract_stack())),
                    why="an optimizer that calls the model again as often as it likes is no straight-line program",
                    next_step="use an optimizer that updates once a step, or run this one eagerly",
                )
            with notes.noted(phase="optimizer"):
                return inner()

        return step


_ABSENT = object()
