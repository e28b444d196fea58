"""Verify runs: a program and eager, from the same seed, for a few steps, compared tensor by tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from neaptide.cost.random_states import random_devices, random_state
from neaptide.frontends import _torch_private as private
from neaptide.frontends.objects.batch_objects import leaves_of
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.frontends.state.state_finder import find_state
from neaptide.frontends.state.step_slots import observation_name, renamed_observation
from neaptide.frontends.state.step_state import StepState
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ops import registry
from neaptide.runtime.comparing.contestants import Factory, build, never_again
from neaptide.runtime.measuring.perturbing import PerturbedRoundings, perturbed_copy
from neaptide.runtime.measuring.tolerance import Tolerance, largest_number, without_noise
from neaptide.runtime.steps.planned_graph import PlannedVariant
from neaptide.runtime.steps.planned_step import PlannedStep

VERIFY_STEPS = 3
# What sums in another order do is taken to be at most so many times what perturbed roundings do.
_MAGNIFIED = 16.0
# In one sample a number may be moved back to where it was: of a single one, every third time or so.
_SAMPLES = 3
GROUPS = ("loss", "gradients", "parameters", "buffers", "optimizer_state")
_GROUP_OF_ROLE = {"parameter": "parameters", "buffer": "buffers", "tensor": "buffers"}


@dataclass
class StepRecord:
    """What a few steps did.

    Attributes:
        tensors: by group and name; results and gradients of every step, the rest after the last.
        to_autograd: of each of the tensors that the user can reach, by group and name: whether it requires a gradient,
            whether it is a leaf, and whether it has no `grad_fn`.
    """

    tensors: dict[str, dict[str, torch.Tensor]] = field(default_factory=lambda: {g: {} for g in GROUPS})
    random_states: tuple[bytes, ...] = ()
    last_result: Any = None
    to_autograd: dict[tuple[str, str], tuple[bool, bool, bool]] = field(default_factory=dict)

    def note(self, group: str, name: str, tensor: torch.Tensor) -> None:
        """Record a tensor of the user's."""
        self.tensors[group][name] = tensor.detach().clone()
        self.to_autograd[group, name] = tensor.requires_grad, tensor.is_leaf, tensor.grad_fn is None


@dataclass(frozen=True)
class Verification:
    """How far two records are apart.

    Attributes:
        max_abs_diff: by group; 0.0 where all is equal, inf where a tensor is missing or of another shape.
        agrees: they are as equal as the plan promises: to the bit, or within the tolerance of their dtypes.
    """

    max_abs_diff: dict[str, float]
    bitwise_equal: bool
    worst: dict[str, str]
    agrees: bool


def record_eager(step: Callable[..., Any], args: tuple[Any, ...], *, steps: int, seed: int) -> StepRecord:
    """Run the user's step as it is."""
    state = find_state(step)
    record = StepRecord()
    seen: dict[str, torch.Tensor] = {}
    begun = 0
    names = {id(slot.current()): slot.name for slot in state.tensors}

    def note(optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        nonlocal begun
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    seen[observation_name(names[id(parameter)], begun)] = parameter.grad.detach().clone()
        begun += 1

    hooked = filter(private.optimizer_hooks, state.optimizers.values())
    handles = [optimizer.register_step_pre_hook(note) for optimizer in hooked]
    torch.manual_seed(seed)
    try:
        for number in range(steps):
            seen.clear()
            begun = 0
            _note_step(record, number, step(*args), seen)
    finally:
        for handle in handles:
            handle.remove()
    _note_state(record, state)
    return record


def record_planned(
    planned: PlannedStep, state: StepState, args: tuple[Any, ...], *, steps: int, seed: int
) -> StepRecord:
    """Run a planned step; `state` is that of the user's step inside it.

    What only host code after the program uses is no state of the program, and names are as short as they can be. So
    the program may have other names for what both have.
    """
    record = StepRecord()
    names = {id(slot.current()): slot.name for slot in state.tensors}
    torch.manual_seed(seed)
    for number in range(steps):
        with planned.state_on_host():
            result, seen = planned.run_watched(*args)
        renamed = {
            slot.name: names[id(slot.current())]
            for slot in planned.state_slots()
            if id(slot.current()) in names
        }
        _note_step(
            record, number, result, {renamed_observation(name, renamed): g for name, g in seen.items()}
        )
    _note_state(record, state)
    return record


def verify_eager(factory: Factory, seed: int) -> StepRecord:
    """Three eager steps, recorded."""
    step, batch = build(factory, seed)
    return record_eager(step, (batch,), steps=VERIFY_STEPS, seed=seed + 1)


def perturbed_eager(factory: Factory, seed: int, eps: float, sample: int = 0) -> StepRecord:
    """Three eager steps, recorded, that round everything a little differently.

    Args:
        eps: parameters are off by up to this share of themselves to begin with. The batch, and what operations make, is off by
            one rounding.
    """
    step, batch = build(factory, seed)
    batch = perturbed_copy(batch, sample)
    _perturb_parameters(step, eps, sample)
    with PerturbedRoundings(sample):
        return record_eager(step, (batch,), steps=VERIFY_STEPS, seed=seed + 1)


def _perturb_parameters(step: Callable[..., Any], eps: float, sample: int) -> None:
    """Change each number of the parameters by a share of itself, up, down or not at all."""
    generator = torch.Generator().manual_seed(sample)
    with torch.no_grad():
        for slot in find_state(step).tensors:
            tensor = slot.current()
            if slot.role == "parameter" and tensor.is_floating_point():
                ways = torch.randint(-1, 2, tensor.shape, generator=generator).to(tensor.device)
                tensor.copy_((tensor.double() * (1.0 + eps * ways)).to(tensor.dtype))


def verify_planned(
    factory: Factory,
    seed: int,
    make: Callable[[Callable[..., Any], Any], PlannedVariant],
    expected: StepRecord,
) -> tuple[Verification, StepRecord]:
    """Three planned steps on fresh objects, compared with eager's.

    Where sums were taken in another order and numbers are further apart than their digits say, eager runs again with
    perturbed roundings, up to three times: what training magnifies there, it may magnify here.
    """
    step, batch = build(factory, seed)
    variant = make(step, batch)
    runner = PlannedStep(step, never_again, variant, on_mismatch="error")
    record = record_planned(runner, find_state(step), (batch,), steps=VERIFY_STEPS, seed=seed + 1)
    tolerance = None if variant.keeps_bits else captured_tolerance(variant.captured, batch)
    found = compare_records(record, expected, tolerance)
    perturbed: list[StepRecord] = []
    while tolerance is not None and not found.agrees and len(perturbed) < _SAMPLES:
        perturbed.append(perturbed_eager(factory, seed, tolerance.eps, len(perturbed)))
        found = compare_records(record, expected, tolerance, perturbed)
    return found, record


def captured_tolerance(captured: CapturedStep, batch: Any) -> Tolerance:
    """What is allowed of a program that takes sums of a captured step in another order, with the sizes of a batch."""
    leaves = leaves_of(((batch,), {}))
    sizes = {} if captured.sizes is None else captured.sizes.binding(leaves)
    return Tolerance.of((with_sizes(program.graph, sizes) for program in captured.programs), registry())


def _note_step(record: StepRecord, number: int, result: Any, gradients: Mapping[str, torch.Tensor]) -> None:
    record.last_result = result
    for position, leaf in enumerate(leaves_of(result)):
        if isinstance(leaf, (torch.Tensor, float, int)):
            record.note("loss", f"step {number} result {position}", torch.as_tensor(leaf))
    for name, gradient in gradients.items():
        record.tensors["gradients"][f"step {number} {name}"] = gradient


def _note_state(record: StepRecord, state: StepState) -> None:
    parameter_names = {}
    for slot in (*state.tensors, *state.unused):
        tensor = slot.current()
        parameter_names[id(tensor)] = slot.name
        if tensor.is_meta:
            continue  # the skeleton of a functional call, say: there are no bytes to compare
        record.note(_GROUP_OF_ROLE[slot.role], slot.name, tensor)
    for label, table in state.kept_state():
        for parameter, entries in table.items():
            for key, entry in entries.items():
                if isinstance(entry, torch.Tensor):
                    name = f"{label}.{parameter_names[id(parameter)]}.{key}"
                    record.note("optimizer_state", name, entry)
    record.random_states = tuple(map(random_state, random_devices()))


def compare_records(
    found: StepRecord,
    expected: StepRecord,
    tolerance: Tolerance | None = None,
    perturbed: Sequence[StepRecord] = (),
) -> Verification:
    """Compare a program's record with eager's, group by group.

    Args:
        tolerance: of sums in another order; None where the program promises eager's bits.
        perturbed: of eager with perturbed roundings; a tensor may be `_MAGNIFIED` times as far from eager's as it is in one of
            them.
    """
    differences: dict[str, float] = {}
    worst: dict[str, str] = {}
    equal = bool(found.random_states) and found.random_states == expected.random_states
    close = equal
    for group in GROUPS:
        largest = 0.0
        ours, theirs = found.tensors[group], expected.tensors[group]
        scale = _Scale(group, theirs)
        for name in {**theirs, **ours}:
            equal = equal and _same_bits(ours.get(name), theirs.get(name))
            distance = _distance(ours.get(name), theirs.get(name))
            if tolerance is not None and distance > tolerance.allowed(theirs.get(name), scale.of(name)):
                close = close and (
                    distance <= _magnified(group, name, expected, perturbed) < math.inf
                    or _is_noise(group, name, found, expected, tolerance, perturbed)
                )
            if not distance <= largest:
                largest, worst[group] = distance, name
        differences[group] = largest
    for (group, name), seen in expected.to_autograd.items():
        if found.to_autograd.get((group, name), seen) != seen:
            equal = close = False
            worst.setdefault(group, f"{name}, in requires_grad, is_leaf or grad_fn")
    return Verification(differences, equal, worst, equal if tolerance is None else close)


class _Scale:
    """The largest number among tensors of a kind: a group, or in the state of optimizers what has one key."""

    def __init__(self, group: str, tensors: Mapping[str, torch.Tensor]) -> None:
        self._is_by_key = group == "optimizer_state"
        self._tensors = tensors
        self._known: dict[str, float] = {}

    def of(self, name: str) -> float:
        key = self._key(name)
        if key not in self._known:
            self._known[key] = largest_number(t for n, t in self._tensors.items() if self._key(n) == key)
        return self._known[key]

    def _key(self, name: str) -> str:
        return name.rpartition(".")[2] if self._is_by_key else ""


def _magnified(group: str, name: str, expected: StepRecord, perturbed: Sequence[StepRecord]) -> float:
    """How far a tensor may be from eager's, by what perturbed roundings did to it."""
    theirs = expected.tensors[group].get(name)
    return _MAGNIFIED * max(
        (_distance(one.tensors[group].get(name), theirs) for one in perturbed), default=0.0
    )


def _is_noise(
    group: str,
    name: str,
    found: StepRecord,
    expected: StepRecord,
    tolerance: Tolerance,
    perturbed: Sequence[StepRecord],
) -> bool:
    """Whether a parameter differs only where all its gradients are noise."""
    ours, theirs = found.tensors[group].get(name), expected.tensors[group].get(name)
    if group != "parameters" or _distance(ours, theirs) == math.inf:
        return False
    assert ours is not None
    assert theirs is not None
    gradients = expected.tensors["gradients"]
    least = tolerance.noise(largest_number(gradients.values()))

    def noise(label: str) -> float:
        return max(least, _magnified("gradients", label, expected, perturbed))

    left = without_noise((ours - theirs).abs().double(), name, gradients, noise)
    scale = largest_number(expected.tensors[group].values())
    return float(left.max()) <= tolerance.allowed(theirs, scale)


def _same_bits(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(
        *[t.resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8) for t in (a, b)]
    )


def _distance(a: torch.Tensor | None, b: torch.Tensor | None) -> float:
    """Largest absolute difference of the numbers; NaN equals NaN."""
    if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if a.numel() == 0:
        return 0.0
    wide = torch.complex128 if a.is_complex() else torch.float64
    wide_a, wide_b = a.to(wide), b.to(wide)
    same = (wide_a == wide_b) | (wide_a.isnan() & wide_b.isnan())
    if bool(same.all()):
        return 0.0
    difference = (wide_a - wide_b).abs()[~same]
    return float(difference.max()) if not bool(difference.isnan().any()) else float("inf")
