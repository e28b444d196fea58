"""Optimizers during a trace: groups and state made of fakes, the user's own put back afterwards."""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from neaptide.errors import CaptureError, HostEffectError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.card.pretended import device_of_copy
from neaptide.frontends.objects.containers import copied, refill
from neaptide.frontends.objects.places import MISSING
from neaptide.frontends.objects.values import is_scalar
from neaptide.frontends.recording.recording import Notes
from neaptide.frontends.source.trace_errors import location, users_line
from neaptide.frontends.source.users_code import find_line
from neaptide.frontends.state.step_slots import (
    NUMBER_TYPES,
    EntryPattern,
    OutputSlot,
    PlainSpec,
    StateKey,
    TensorSpec,
    held_elsewhere,
    hyper_parameters,
    observation_name,
)
from neaptide.frontends.state.step_state import StepState

Fakes = Mapping[tuple[Any, ...], torch.Tensor]

# Their updates give the same bits with `foreach` and without on the CPU; those of others do not, or nobody knows.
_SAME_WITHOUT_FOREACH = frozenset(
    {torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adadelta, torch.optim.Adagrad}
    | {torch.optim.Adamax, torch.optim.RMSprop, torch.optim.Rprop}
)


class OptimizerCopies:
    """The optimizers of a step while it is traced; hyper-parameters called `changing` are inputs of the program.

    With `plain`, Python numbers that the step itself writes are plain numbers in the trace, not symbols. `entry_contents` is
    what stood in state and groups when the step began, by slot key.
    """

    def __init__(
        self, state: StepState, entry: EntryPattern, changing: frozenset[str], *, plain: bool = False
    ) -> None:
        self._state = state
        self._entry = entry
        self._names = {id(slot.current()): slot.name for slot in state.tensors}
        self._elsewhere = held_elsewhere(state)
        tables = _tables(state.optimizers.values())
        self._kept = [(table, copied(table)) for table in tables]
        self._original = {
            label: [{**group, "params": [*group["params"]]} for group in optimizer.param_groups]
            for label, optimizer in state.optimizers.items()
        }
        # What torch itself notes on an optimizer: that `step` was called, for the order of schedulers.
        self._notes = [
            (optimizer, {n: c for n, c in vars(optimizer).items() if _is_torchs(optimizer, n)})
            for optimizer in (*state.optimizers.values(), *state.wrappers)
        ]
        self._groups: dict[str, list[dict[str, Any]]] = {}
        self._fake_names: dict[int, str] = {}
        self._content: dict[StateKey, Any] = {}
        self._replaced: dict[int, dict[str, Any]] = {}  # by key of the state, entries of a layer that is gone
        self.entry_contents: dict[tuple[Any, ...], Any] = {}
        self._changing = changing
        self._plain = plain
        self._steps = 0

    @contextlib.contextmanager
    def noted(self, notes: Notes) -> Iterator[None]:
        """Note the optimizer phase, and the gradients as they are when `step` begins."""
        optimizers = list(self._state.optimizers.values())
        had_step = [vars(optimizer).get("step") for optimizer in optimizers]
        observe = functools.partial(self._observe, notes)
        handles = [o.register_step_pre_hook(observe) for o in optimizers if private.optimizer_hooks(o)]
        for optimizer in optimizers:
            optimizer.step = self._noted_step(optimizer, notes)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            for optimizer, step in zip(optimizers, had_step, strict=True):
                if step is None:
                    del vars(optimizer)["step"]
                else:
                    vars(optimizer)["step"] = step

    def put_back(self) -> None:
        """Give the optimizers their own groups and state again."""
        for optimizer, before in self._notes:
            attributes = vars(optimizer)
            for name in [n for n in attributes if _is_torchs(optimizer, n) and n not in before]:
                del attributes[name]
            attributes.update(before)
        for table, before in self._kept:
            refill(table, before)

    def fill(self, fakes: Fakes) -> None:
        """Write the fakes into groups and state: whoever else holds one of these lists and dicts has them, too."""
        self._fake_names = {id(fakes["tensor", slot.name]): slot.name for slot in self._state.tensors}
        for label, optimizer in self._state.optimizers.items():
            for group, original in zip(optimizer.param_groups, self._original[label], strict=True):
                self._fill_group(optimizer, group, original["params"], fakes)
            self._put_inputs(label, optimizer, optimizer.param_groups, fakes)
        for label, table in self._state.kept_state():
            known = {self._names[id(p)]: entries for p, entries in table.items() if id(p) in self._names}
            others = {key: entries for key, entries in table.items() if id(key) not in self._names}
            for part in (table, *known.values()):
                dict.clear(part)
            # They belong to no parameter. Where the step is over, all but those of tensors that were replaced are refused.
            dict.update(table, others)
            self._replaced |= {id(k): dict(e) for k, e in others.items() if isinstance(k, torch.Tensor)}
            for (owner, name, key), spec in self._entry.optimizer_state.items():
                if owner == label:
                    content = self._entry_content((label, name, key), spec, fakes)
                    entries = table.setdefault(fakes["tensor", name], known.get(name, {}))
                    self._content[label, name, key] = entries[key] = content
        optimizers = self._state.optimizers.items()
        self._groups = {label: [dict(group) for group in o.param_groups] for label, o in optimizers}
        self.entry_contents = dict(self.contents())

    def _entry_content(self, key: StateKey, spec: TensorSpec | PlainSpec, fakes: Fakes) -> Any:
        if key in self._elsewhere:
            return fakes["tensor", self._elsewhere[key]]
        if isinstance(spec, TensorSpec):
            return fakes["state", *key]
        if spec.kind in NUMBER_TYPES:
            return self._number(("state", *key), spec.kind(1), fakes)
        if spec.content is None and spec.kind is not type(None):
            raise _odd_entry(key[0], key, spec.kind, self._state)
        return spec.content

    def _number(self, slot_key: tuple[Any, ...], number: float, fakes: Fakes) -> Any:
        """The symbol of a Python number; where all are to stay plain, the number as the host knows it."""
        if self._plain:
            return self._entry.numbers.get(slot_key, number)
        return fakes[slot_key].item()

    def _fill_group(
        self,
        optimizer: torch.optim.Optimizer,
        group: dict[str, Any],
        parameters: Sequence[torch.Tensor],
        fakes: Fakes,
    ) -> None:
        filled = [self._fake_of(p, fakes) for p in group["params"]]
        if isinstance(group["params"], list):
            group["params"][:] = filled
        else:
            group["params"] = type(group["params"])(filled)
        if "foreach" in group and not group.get("fused"):
            alike = all(private.updates_one_by_one(device_of_copy(p)) for p in parameters)
            if alike and type(optimizer) in _SAME_WITHOUT_FOREACH:
                group["foreach"] = False  # one op over all gradients would keep them all alive at once
            elif group["foreach"] is None:  # torch's choice; it does not know the fakes for parameters
                differentiable = bool(group.get("differentiable"))
                absent = any(device_of_copy(p) != p.device for p in parameters)
                group["foreach"] = private.chooses_foreach(
                    [*parameters], differentiable=differentiable, is_on_absent_card=absent
                )

    def _put_inputs(
        self, label: str, optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]], fakes: Fakes
    ) -> None:
        """Make hyper-parameters that are inputs of the program tensors and numbers of the trace."""
        for entry in hyper_parameters(label, optimizer):
            fake: Any = fakes.get(entry.slot_key(label))
            if fake is None:
                continue
            group = groups[entry.group]
            # Fused kernels take a plain float or a tensor, but no number known only at run time.
            as_tensor = isinstance(entry.content, torch.Tensor) or group.get("fused")
            content = fake if as_tensor else self._number(entry.slot_key(label), entry.content, fakes)
            if entry.position is not None:
                items = [*group[entry.key]]
                items[entry.position] = content
                content = type(group[entry.key])(items)
            group[entry.key] = content

    def _fake_of(self, parameter: torch.Tensor, fakes: Fakes) -> torch.Tensor:
        name = self._names.get(id(parameter))
        # A place inside param_groups holds its fake already when the parameter is found only there.
        return fakes["tensor", name] if name is not None else parameter

    def collect(self, written: Callable[[OutputSlot, Any], None]) -> dict[StateKey, TensorSpec | PlainSpec]:
        """The state that exists now; `written` is called for what the step made or replaced."""
        found: dict[StateKey, TensorSpec | PlainSpec] = {}
        for label, optimizer in self._state.optimizers.items():
            self._collect_groups(label, optimizer, written)
        for label, table in self._state.kept_state():
            for key, content in self._entries(label, table):
                is_tensor = isinstance(content, torch.Tensor)
                found[key] = TensorSpec.of(content) if is_tensor else PlainSpec.of(content)
                if content is not self._content.get(key, MISSING):
                    if not (isinstance(content, _WRITABLE) or is_scalar(content)):
                        raise _odd_entry("the step", key, type(content), self._state)
                    written(OutputSlot("optimizer_state", f"{label}.state.{key[1]}.{key[2]}", key), content)
        gone = [key for key in self._content if key not in found]
        if gone:
            raise CaptureError(
                f"the step removes {gone[0][2]!r} from the state of {gone[0][0]}",
                where=find_line("pop", self._state.codes),
                why="it would be there still when the program has run",
                next_step="keep it, or remove it outside the step",
            )
        return found

    def _entries(self, label: str, table: Mapping[Any, Any]) -> Iterator[tuple[StateKey, Any]]:
        """What stands in the state of an optimizer now."""
        for parameter, entries in table.items():
            name = self._fake_names.get(id(parameter))
            if name is None and _is_same(entries, self._replaced.get(id(parameter))):
                continue
            if name is None:
                kind = type(self._state.optimizers[label]).__name__
                key = repr(parameter) if is_scalar(parameter) else f"a {type(parameter).__name__}"
                raise CaptureError(
                    f"the optimizer {kind} keeps state that belongs to no parameter",
                    where=find_line("state", self._state.codes),
                    why=f"{key} is a key of {label}.state, and is no parameter of the step",
                    next_step="keep it in the parameter groups, or with each parameter",
                )
            for key, content in entries.items():
                yield (label, name, key), content

    def _collect_groups(
        self, label: str, optimizer: torch.optim.Optimizer, written: Callable[[OutputSlot, Any], None]
    ) -> None:
        """What the step wrote into the parameter groups: numbers that were there, or it is refused."""
        if len(optimizer.param_groups) != len(self._groups[label]):
            raise CaptureError(
                f"the step adds a parameter group to {label}", next_step="add it before the first step"
            )
        frozen = []
        for index, (now, then) in enumerate(zip(optimizer.param_groups, self._groups[label], strict=True)):
            for key in {**then, **now}:
                if now.get(key, MISSING) is then.get(key, MISSING):
                    continue
                name = f"{label}.param_groups[{index}].{key}"
                original = self._original[label][index].get(key)
                kind = PlainSpec.of(now.get(key)).kind
                if type(original) not in NUMBER_TYPES or kind is not type(original):
                    raise HostEffectError(
                        f"the step writes {label}.param_groups[{index}][{key!r}]",
                        where=find_line(str(key), self._state.codes),
                        why="it would be written once, at capture, and never again",
                        next_step="set it outside the step, or before the first one; a number may then be counted up",
                    )
                frozen.append(name)
                written(OutputSlot("hyper_parameter", name, (label, index, key)), now[key])
        if unknown := frozenset(frozen) - self._changing:
            raise WrittenNumbersError(unknown)

    def contents(self) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """What stands in the state and in the groups now, by slot key."""
        for label, table in self._state.kept_state():
            for state_key, content in self._entries(label, table):
                yield ("state", *state_key), content
        for label, optimizer in self._state.optimizers.items():
            for entry in hyper_parameters(label, optimizer):
                yield entry.slot_key(label), entry.content

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

        def step(*args: Any, **kwargs: Any) -> Any:
            closures = [item for item in (*args, *kwargs.values()) if callable(item)]
            if closures and isinstance(optimizer, torch.optim.LBFGS):
                raise CaptureError(
                    "optimizer.step is called with a closure",
                    where=location(users_line(traceback.extract_stack())),
                    why="an optimizer that calls the model again as often as it likes is no straight-line program",
                    next_step="use an optimizer that updates once a step, or run this one eagerly",
                )
            with notes.noted(phase="optimizer"):
                return inner(
                    *(_noted_closure(item, notes) for item in args),
                    **{name: _noted_closure(item, notes) for name, item in kwargs.items()},
                )

        return step


def _tables(optimizers: Iterable[torch.optim.Optimizer]) -> list[Any]:
    """The lists and dicts in which optimizers keep parameters, groups and state, each once; some may share them."""
    found: list[Any] = []
    for optimizer in optimizers:
        found += (optimizer.param_groups, optimizer.state, *optimizer.param_groups, *optimizer.state.values())
        found += (group["params"] for group in optimizer.param_groups)
    return list({id(table): table for table in found if isinstance(table, (list, dict))}.values())


def _noted_closure(item: Any, notes: Notes) -> Any:
    """A closure that an update calls is forward and backward, not part of the update."""
    if not callable(item):
        return item

    @functools.wraps(item)
    def closure(*args: Any, **kwargs: Any) -> Any:
        with notes.noted(phase="forward"):
            return item(*args, **kwargs)

    return closure


def _is_torchs(optimizer: torch.optim.Optimizer, attribute: str) -> bool:
    """Whether torch itself writes an attribute of an optimizer; what others write is an effect of the step."""
    if attribute == "step":
        return False
    of_torch = type(optimizer).__module__.startswith("torch.") and attribute[0] == "_"
    return of_torch or attribute in private.OPTIMIZER_INTERNALS


class WrittenNumbersError(CaptureError):
    """The step writes numbers of parameter groups that were traced as constants: `names`, that have to be inputs."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(f"the step writes {', '.join(sorted(names))}")
        self.names = names


def _is_same(entries: Mapping[str, Any], before: Mapping[str, Any] | None) -> bool:
    """Whether entries of a state are the tensors that they were; numbers could have been read without a guard."""
    return (
        before is not None
        and entries.keys() == before.keys()
        and all(isinstance(kept, torch.Tensor) and entries[key] is kept for key, kept in before.items())
    )


_WRITABLE = (torch.Tensor, torch.SymInt, torch.SymFloat)


def _odd_entry(who: str, key: StateKey, kind: type, state: StepState) -> CaptureError:
    """The error for an entry of optimizer state that a program cannot read or write anew at each call."""
    return CaptureError(
        f"{who} keeps a {kind.__name__} in {key[0]}.state[...][{key[2]!r}]",
        where=find_line(key[2], state.codes),
        why="it would be frozen into the program: tensors, numbers and plain values are read and written at each call",
        next_step="keep it in tensors or numbers, one for each entry",
    )
