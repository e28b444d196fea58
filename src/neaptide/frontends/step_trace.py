"""Runs a training step once on fake tensors and records every operation below autograd.

The user's parameters, buffers, gradients and optimizer state are replaced by fake twins for the duration of the
trace and put back afterwards; nothing of model size is allocated and no user tensor is written.
"""

from __future__ import annotations

import contextlib
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.errors import CaptureError, NeaptideError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.line_notes import LineNotes
from neaptide.frontends.step_state import StepState, TensorSlot
from neaptide.frontends.trace_watch import StateWatch, location, no_host_output, users_line

HOST_RATE_KEYS = ("lr",)  # changing scalars of a parameter group that become inputs of the graph
IGNORED_GROUP_KEYS = frozenset({"params", "lr", "initial_lr", "foreach", "fused", "param_names"})


@dataclass(frozen=True)
class TensorSpec:
    """Geometry of a tensor that may not exist yet, such as optimizer state before the first step."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @staticmethod
    def of(tensor: torch.Tensor) -> TensorSpec:
        return TensorSpec(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.device)


@dataclass(frozen=True)
class EntryPattern:
    """Which gradients and which optimizer state exist when the step begins.

    Attributes:
        gradients: by parameter name.
        optimizer_state: by (optimizer, parameter name, key).
    """

    gradients: Mapping[str, TensorSpec] = field(default_factory=dict)
    optimizer_state: Mapping[tuple[str, str, str], TensorSpec] = field(default_factory=dict)

    def names(self) -> tuple[frozenset[str], frozenset[tuple[str, str, str]]]:
        """What is present, without the geometry."""
        return frozenset(self.gradients), frozenset(self.optimizer_state)


@dataclass(frozen=True)
class InputSlot:
    """One input of the captured program.

    `role` is parameter, buffer, tensor, gradient, optimizer_state, rate (a Python number of a parameter group,
    or a tensor kept there) or batch. `key` says where it is read at each call.
    """

    role: str
    name: str
    key: tuple[Any, ...]


@dataclass(frozen=True)
class OutputSlot:
    """One output: `role` is result (a leaf of what the step returns), gradient or optimizer_state."""

    role: str
    name: str
    key: tuple[Any, ...]


@dataclass(frozen=True)
class Trace:
    """A traced step.

    Attributes:
        module: the recorded operations; node metadata holds fake values and annotations.
        inputs: meaning of each placeholder, in order.
        outputs: meaning of each output, in order.
        result_spec: how the step's return value is put together again.
        constants: leaves of the return value that are no tensors, by leaf position.
        entry: what the step was traced with.
        exit: what it leaves behind.
        kept_gradients: parameters whose entry gradient is still theirs after the step.
    """

    module: torch.fx.GraphModule
    inputs: tuple[InputSlot, ...]
    outputs: tuple[OutputSlot, ...]
    result_spec: Any
    constants: Mapping[int, Any]
    entry: EntryPattern
    exit: EntryPattern
    kept_gradients: frozenset[str]


def present_pattern(state: StepState) -> EntryPattern:
    """The gradients and optimizer state that exist right now."""
    gradients = {}
    parameter_names = {}
    for slot in state.tensors:
        tensor = slot.current()
        parameter_names[id(tensor)] = slot.name
        if tensor.is_leaf and tensor.requires_grad and tensor.grad is not None:
            gradients[slot.name] = TensorSpec.of(tensor.grad)
    optimizer_state = {}
    for label, optimizer in state.optimizers.items():
        for parameter, entries in optimizer.state.items():
            if id(parameter) not in parameter_names:
                continue
            for key, content in entries.items():
                if isinstance(content, torch.Tensor):
                    name = parameter_names[id(parameter)]
                    optimizer_state[label, name, key] = TensorSpec.of(content)
    return EntryPattern(gradients, optimizer_state)


def observation_name(parameter: str, optimizer_step: int) -> str:
    """Name of a gradient as it is when the n-th `optimizer.step()` of a training step begins (from 0)."""
    return f"{parameter}.grad@{optimizer_step}"


def trace_step(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    state: StepState,
    entry: EntryPattern,
) -> Trace:
    """Trace a step with the given pattern of gradients and optimizer state.

    Raises:
        CaptureError: naming the user's line, when the step cannot become one straight-line program.
    """
    return _Tracer(step, args, kwargs, state, entry).run()


class _Tracer:
    def __init__(
        self,
        step: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        state: StepState,
        entry: EntryPattern,
    ) -> None:
        self.step = step
        self.state = state
        self.entry = entry
        self.batch_leaves, self.batch_spec = pytree.tree_flatten((args, dict(kwargs)))
        self.mode = private.new_fake_mode()
        self.slots: list[InputSlot] = []
        self.fakes: list[torch.Tensor] = []
        self.twin: dict[str, torch.Tensor] = {}
        self.outputs: list[OutputSlot] = []
        self.constants: dict[int, Any] = {}
        self.result_spec: Any = None
        self.exit = EntryPattern()
        self.kept: frozenset[str] = frozenset()
        self.optimizer_steps = 0

    def run(self) -> Trace:
        with self.mode:
            self._fake_inputs()
        watch = StateWatch(self.state, self.step)
        try:
            module = self._trace()
        except NeaptideError:
            self._restore()
            watch.restore()
            raise
        except Exception as error:
            self._restore()
            watch.restore()
            raise self._explain(error) from error
        lost = self._restore()
        written = [*lost, *watch.restore()]
        if written:
            raise watch.refuse(written)
        return Trace(
            module,
            tuple(self.slots),
            tuple(self.outputs),
            self.result_spec,
            self.constants,
            self.entry,
            self.exit,
            self.kept,
        )

    # -- inputs ---------------------------------------------------------------------------------------------

    def _fake_inputs(self) -> None:
        for slot in self.state.tensors:
            tensor = slot.current()
            fake = self._fake(tensor)
            self._refuse_hooks(slot, tensor, fake)
            self._add(InputSlot(slot.role, slot.name, ("tensor", slot.name)), fake)
        for name, spec in self.entry.gradients.items():
            self._add(InputSlot("gradient", f"{name}.grad", ("gradient", name)), self._from_spec(spec))
        for (label, name, key), spec in self.entry.optimizer_state.items():
            slot_name = f"{label}.state.{name}.{key}"
            self._add(InputSlot("optimizer_state", slot_name, ("state", label, name, key)), self._from_spec(spec))
        for label, optimizer in self.state.optimizers.items():
            for index, group in enumerate(optimizer.param_groups):
                for key in HOST_RATE_KEYS:
                    if key not in group:
                        continue
                    rate = group[key]
                    where = f"{label}.param_groups[{index}].{key}"
                    slot = InputSlot("rate", where, ("rate", label, index, key))
                    if isinstance(rate, torch.Tensor):
                        self._add(slot, self._fake(rate))
                    else:
                        self._add(slot, torch.empty((), dtype=torch.float64, device="cpu"))
        for position, leaf in enumerate(self.batch_leaves):
            if isinstance(leaf, torch.Tensor):
                self._add(InputSlot("batch", f"batch_{position}", ("batch", position)), self._fake(leaf))

    def _add(self, slot: InputSlot, fake: torch.Tensor) -> None:
        self.slots.append(slot)
        self.fakes.append(fake)

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type == "meta":
            # A model built without bytes stands for one on the CPU: ops must choose real kernels.
            twin = self._from_spec(TensorSpec.of(tensor))
            if isinstance(tensor, torch.nn.Parameter):
                return torch.nn.Parameter(twin, requires_grad=tensor.requires_grad)
            return twin.requires_grad_(tensor.requires_grad)
        try:
            fake: torch.Tensor = self.mode.from_tensor(tensor, static_shapes=True)
        except Exception as error:
            raise CaptureError(
                f"a tensor of type {type(tensor).__name__} cannot be traced",
                why=str(error).splitlines()[0] if str(error) else type(error).__name__,
            ) from error
        if fake.grad is not None:
            fake.grad = None
        return fake

    def _from_spec(self, spec: TensorSpec) -> torch.Tensor:
        device = torch.device("cpu") if spec.device.type == "meta" else spec.device
        return torch.empty_strided(spec.shape, spec.strides, dtype=spec.dtype, device=device)

    def _refuse_hooks(self, slot: TensorSlot, tensor: torch.Tensor, fake: torch.Tensor) -> None:
        gradient_hooks, accumulated = private.parameter_hooks(tensor)
        if accumulated:
            raise CaptureError(
                f"{slot.name} has a post-accumulate-gradient hook",
                why="such a hook usually updates the parameter itself, found by identity, inside the backward",
                next_step="remove the hook: neaptide places each update right after its gradient where that pays",
            )
        for hook in gradient_hooks:
            fake.register_hook(hook)

    # -- trace ----------------------------------------------------------------------------------------------

    def _trace(self) -> torch.fx.GraphModule:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.mode)
            stack.enter_context(private.preserve_node_meta())
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(private.plain_checkpoints())
            stack.enter_context(private.inlined_compile())
            stack.enter_context(no_host_output())
            stack.enter_context(self._noted_modules())
            stack.enter_context(self._noted_backward())
            stack.enter_context(self._swapped_optimizers())
            stack.enter_context(LineNotes())
            return private.make_fx(lambda inputs: self._program(inputs))(self.fakes)  # noqa: PLW0108

    def _program(self, inputs: list[torch.Tensor]) -> list[Any]:
        twin = dict(zip((slot.key for slot in self.slots), inputs, strict=True))
        self.twin = {slot.name: twin["tensor", slot.name] for slot in self.state.tensors}
        for slot in self.state.tensors:
            for place in slot.places:
                place.set(twin["tensor", slot.name])
        for name in self.entry.gradients:
            twin["tensor", name].grad = twin["gradient", name]
        self._fill_optimizers(twin)
        leaves = list(self.batch_leaves)
        for position in range(len(leaves)):
            if ("batch", position) in twin:
                leaves[position] = twin["batch", position]
        args, kwargs = pytree.tree_unflatten(leaves, self.batch_spec)
        result = self.step(*args, **kwargs)
        return self._collect(result, twin)

    def _fill_optimizers(self, twin: Mapping[tuple[Any, ...], torch.Tensor]) -> None:
        for label, optimizer in self.state.optimizers.items():
            original_groups, _ = self._original[label]
            groups = []
            for index, group in enumerate(original_groups):
                copy = dict(group)
                copy["params"] = [self._twin_of(p, twin) for p in group["params"]]
                if copy.get("foreach"):
                    copy["foreach"] = False  # one op over all gradients would keep them all alive at once
                if "foreach" in copy and copy["foreach"] is None and not copy.get("fused"):
                    copy["foreach"] = False
                for key in HOST_RATE_KEYS:
                    if ("rate", label, index, key) in twin:
                        rate = twin["rate", label, index, key]
                        # Fused kernels take a plain float or a tensor, but no number known only at run time.
                        as_tensor = isinstance(group[key], torch.Tensor) or copy.get("fused")
                        copy[key] = rate if as_tensor else rate.item()
                groups.append(copy)
            optimizer.param_groups = groups
            optimizer.state = defaultdict(dict)
            for (owner, name, key), _ in self.entry.optimizer_state.items():
                if owner == label:
                    optimizer.state[twin["tensor", name]][key] = twin["state", label, name, key]
            self._copy_plain_state(label, optimizer, twin)

    def _copy_plain_state(
        self, label: str, optimizer: torch.optim.Optimizer, twin: Mapping[tuple[Any, ...], torch.Tensor]
    ) -> None:
        """State that is no tensor (a Python step count of an older optimizer) is handed over as it is."""
        _, original = self._original[label]
        for parameter, entries in original.items():
            name = self._original_names.get(id(parameter))
            if name is None:
                continue
            for key, content in entries.items():
                if not isinstance(content, torch.Tensor):
                    optimizer.state[twin["tensor", name]][key] = content

    def _twin_of(self, parameter: torch.Tensor, twin: Mapping[tuple[Any, ...], torch.Tensor]) -> torch.Tensor:
        name = self._original_names.get(id(parameter))
        # A place inside param_groups was overwritten by its twin already when the parameter is found only there.
        return twin["tensor", name] if name is not None else parameter

    def _collect(self, result: Any, twin: Mapping[tuple[Any, ...], torch.Tensor]) -> list[Any]:
        returned: list[Any] = []
        leaves, self.result_spec = pytree.tree_flatten(result)
        for position, leaf in enumerate(leaves):
            if isinstance(leaf, (torch.Tensor, torch.SymFloat, torch.SymInt)):
                self.outputs.append(OutputSlot("result", f"result_{position}", (position,)))
                returned.append(leaf.detach() if isinstance(leaf, torch.Tensor) else leaf)
            else:
                self.constants[position] = leaf
        gradients: dict[str, TensorSpec] = {}
        kept = set()
        for slot in self.state.tensors:
            fake = twin["tensor", slot.name]
            if not (fake.is_leaf and fake.requires_grad) or fake.grad is None:
                continue
            gradients[slot.name] = TensorSpec.of(fake.grad)
            if fake.grad is twin.get(("gradient", slot.name)):
                kept.add(slot.name)
                continue
            self.outputs.append(OutputSlot("gradient", f"{slot.name}.grad", (slot.name,)))
            returned.append(fake.grad)
        optimizer_state = self._collect_state(twin, returned)
        self.exit = EntryPattern(gradients, optimizer_state)
        self.kept = frozenset(kept)
        for slot in self.state.tensors:
            twin["tensor", slot.name].grad = None
        for position in range(len(self.batch_leaves)):
            if ("batch", position) in twin and twin["batch", position].grad is not None:
                raise CaptureError(
                    f"the step computes a gradient for tensor {position} of its arguments",
                    why="it would be accumulated in the caller's batch",
                    next_step="detach the batch, or make that tensor a parameter",
                )
        return returned

    def _collect_state(
        self, twin: Mapping[tuple[Any, ...], torch.Tensor], returned: list[Any]
    ) -> dict[tuple[str, str, str], TensorSpec]:
        found: dict[tuple[str, str, str], TensorSpec] = {}
        names = {id(twin["tensor", slot.name]): slot.name for slot in self.state.tensors}
        for label, optimizer in self.state.optimizers.items():
            _, original = self._original[label]
            before = {self._original_names.get(id(p)): entries for p, entries in original.items()}
            for parameter, entries in optimizer.state.items():
                name = names[id(parameter)]
                for key, content in entries.items():
                    if not isinstance(content, torch.Tensor):
                        if before.get(name, {}).get(key, content) != content:
                            raise CaptureError(
                                f"the optimizer {type(optimizer).__name__} counts {key!r} in Python",
                                why="it would be frozen into the program",
                                next_step="use an optimizer that keeps it in a tensor (SGD, Adam, AdamW do)",
                            )
                        continue
                    found[label, name, key] = TensorSpec.of(content)
                    if content is not twin.get(("state", label, name, key)):
                        slot = f"{label}.state.{name}.{key}"
                        self.outputs.append(OutputSlot("optimizer_state", slot, (label, name, key)))
                        returned.append(content)
        return found

    # -- surroundings ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _swapped_optimizers(self) -> Iterator[None]:
        """Remember groups and state; note the optimizer phase and the gradients when `step` begins."""
        self._original_tensors = [(slot, slot.current()) for slot in self.state.tensors]
        self._original_names = {id(tensor): slot.name for slot, tensor in self._original_tensors}
        self._original = {k: (o.param_groups, o.state) for k, o in self.state.optimizers.items()}
        had_step = {label: vars(o).get("step") for label, o in self.state.optimizers.items()}
        for optimizer in self.state.optimizers.values():
            optimizer.step = self._noted_step(optimizer)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for label, optimizer in self.state.optimizers.items():
                if had_step[label] is None:
                    del vars(optimizer)["step"]
                else:
                    vars(optimizer)["step"] = had_step[label]

    def _noted_step(self, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
        inner = optimizer.step

        def step(closure: Callable[[], Any] | None = None) -> Any:
            if closure is not None:
                raise CaptureError(
                    "optimizer.step is called with a closure",
                    where=location(users_line(traceback.extract_stack()[:-1])),
                    why="an optimizer that calls the model again as often as it likes is no straight-line program",
                )
            names = {id(p): n for n, p in self._live_twins()}
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None and id(parameter) in names:
                        observed = observation_name(names[id(parameter)], self.optimizer_steps)
                        with private.annotate({"observe": observed}):
                            parameter.grad.detach()
            self.optimizer_steps += 1
            with private.annotate({"phase": "optimizer"}):
                return inner()

        return step

    def _live_twins(self) -> list[tuple[str, torch.Tensor]]:
        return [(slot.name, slot.current()) for slot in self.state.tensors]

    @contextlib.contextmanager
    def _noted_modules(self) -> Iterator[None]:
        """Note the dotted module path on what is traced inside each submodule."""
        paths = self.state.module_paths
        open_notes: list[tuple[int, Any]] = []

        def enter(module: torch.nn.Module, _inputs: Any) -> None:
            if id(module) in paths:
                note = private.annotate({"module": paths[id(module)]})
                note.__enter__()
                open_notes.append((id(module), note))

        def leave(module: torch.nn.Module, _inputs: Any, _output: Any) -> None:
            while open_notes and id(module) in paths:
                owner, note = open_notes.pop()
                note.__exit__(None, None, None)
                if owner == id(module):
                    break

        handles = [
            torch.nn.modules.module.register_module_forward_pre_hook(enter),
            torch.nn.modules.module.register_module_forward_hook(leave, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @contextlib.contextmanager
    def _noted_backward(self) -> Iterator[None]:
        """Note the backward phase, and link each backward node to its forward line."""
        backward, grad = torch.autograd.backward, torch.autograd.grad

        def linked(tensors: Any) -> None:
            roots = [t.grad_fn for t in pytree.tree_leaves(tensors) if isinstance(t, torch.Tensor) and t.grad_fn]
            private.link_backward_to_forward(roots)

        def noted_backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            linked(tensors)
            with private.annotate({"phase": "backward"}):
                return backward(tensors, *args, **kwargs)

        def noted_grad(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            linked(outputs)
            with private.annotate({"phase": "backward"}):
                return grad(outputs, *args, **kwargs)

        torch.autograd.backward, torch.autograd.grad = noted_backward, noted_grad
        try:
            yield
        finally:
            torch.autograd.backward, torch.autograd.grad = backward, grad

    def _restore(self) -> list[str]:
        """Puts the user's tensors back; returns the names of places that the step had rebound."""
        rebound = []
        if not hasattr(self, "_original_tensors"):
            return rebound
        for slot, tensor in self._original_tensors:
            for place in slot.places:
                found = place.get()
                if found is not tensor and not (found is self.twin.get(slot.name)):
                    rebound.append(place.name)
                place.set(tensor)
        for label, optimizer in self.state.optimizers.items():
            optimizer.param_groups, optimizer.state = self._original[label]
        return rebound

    def _explain(self, error: Exception) -> CaptureError:
        frame = users_line(traceback.extract_tb(error.__traceback__))
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if isinstance(error, private.data_dependent_errors()):
            return CaptureError(
                "the step asks for a number that depends on the data",
                where=location(frame),
                why=f"{type(error).__name__}: {first}",
                next_step="keep the decision in tensors (torch.where), or take it outside the step",
            )
        if "FakeTensor" in first or "fake" in first.lower():
            return CaptureError(
                "the step uses a tensor that was not found",
                where=location(frame),
                why=first,
                next_step="pass it with the batch, make it reachable from the step, or name it in state=",
            )
        return CaptureError(
            "the step failed while it was traced",
            where=location(frame),
            why=f"{type(error).__name__}: {first}",
            next_step="run the step eagerly once; if that works, report this line",
        )
