"""Programs that are run side by side, each on fresh objects of one factory or of batches of other shapes, and what is measured of them."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

from neaptide.frontends.dims.dynamic_dims import DynamicDim, axes_inwards, dense_strides
from neaptide.frontends.objects.batch_objects import flatten, leaves_of
from neaptide.frontends.state.state_finder import find_state
from neaptide.frontends.torch_step import rebind_step
from neaptide.runtime.calls.binding import state_tensors
from neaptide.runtime.measuring.meter import StepMeasurement, measure_step
from neaptide.runtime.measuring.timing import Step, StepTimes, in_turns, time_once
from neaptide.runtime.steps.arguments import check_factory, check_made
from neaptide.runtime.steps.planned_graph import PlannedVariant
from neaptide.runtime.steps.planned_step import PlannedStep

Factory = Callable[[], tuple[Callable[..., Any], Any]]

_MOST_FIRST_STEPS = 64  # more than the steps whose branches a capture plays ahead


@dataclass(frozen=True, slots=True)
class Measuring:
    """How programs are run side by side.

    Attributes:
        own_processes: measure each program in a process of its own. Numbers are compared in this one.
    """

    repeats: int  # timed steps of each program, taking turns; 0 measures no time
    eager: bool = True
    verify: bool = True
    seed: int = 0
    own_processes: bool = False
    runs: bool = True  # whether anything is run at all; False gives predictions only
    progress: Callable[[str], None] | None = None


class Rival(Protocol):
    """A program that is compared with others: a `Contestant`, whose methods say what each does, or one in another process.

    `tests/runtime/comparing/test_rival_conformance.py` holds both to this.
    """

    @property
    def name(self) -> str: ...

    def first_steps(self) -> int: ...

    def steps(self, count: int) -> None: ...

    def memory(self) -> StepMeasurement: ...

    def timed(self) -> tuple[float, float]: ...


@dataclass(frozen=True)
class Contestant:
    """A program ready to run on objects of its own: a `Rival` in this process.

    Attributes:
        is_steady: the next step is a usual one, the program of which is predicted.
    """

    name: str
    run: Callable[[], Any]
    persistent: Callable[[], Iterable[torch.Tensor]]
    is_steady: Callable[[], bool] = lambda: True

    def first_steps(self) -> int:
        """Run until the usual step is next, at least once; how many steps that took."""
        for number in range(1, _MOST_FIRST_STEPS):
            self.run()
            if self.is_steady():
                return number
        return _MOST_FIRST_STEPS - 1

    def steps(self, count: int) -> None:
        """Run so many steps."""
        for _ in range(count):
            self.run()

    def memory(self) -> StepMeasurement:
        """Peaks of a step."""
        found = measure_step(self.run, self.persistent)
        gc.collect()
        return found

    def timed(self) -> tuple[float, float]:
        """(wall, processor) seconds of a step after another one, which leaves heap and caches as it does."""
        return time_once(self.run, before=1)


@dataclass(frozen=True)
class Measured:
    """What was measured of one program."""

    memory: StepMeasurement
    times: StepTimes | None


def build(factory: Factory, seed: int) -> tuple[Callable[..., Any], Any]:
    """Fresh objects from a factory, the same for the same seed."""
    check_factory(factory)
    torch.manual_seed(seed)
    return check_made(factory(), factory)


def eager_contestant(factory: Factory, seed: int, name: str = "eager") -> Contestant:
    """The user's function as it is."""
    step, batch = build(factory, seed)
    state = find_state(step)
    return Contestant(name, lambda: step(batch), lambda: [*state_tensors(state), *_tensors(batch)])


def planned_contestant(
    name: str, factory: Factory, seed: int, make: Callable[[Callable[..., Any], Any], PlannedVariant]
) -> Contestant:
    """A planned program on fresh objects."""
    step, batch = build(factory, seed)
    variant = make(step, batch)
    runner = PlannedStep(step, never_again, variant, on_mismatch="error")
    # Nobody else has these objects, so nothing is brought back.
    runner.state_on_host().__enter__()
    return Contestant(
        name,
        lambda: runner(batch),
        lambda: [*runner.persistent(), *_tensors(batch)],
        lambda: runner.is_steady(batch),
    )


def measure(rivals: Sequence[Rival], repeats: int, *, between: Step | None = None) -> dict[str, Measured]:
    """Peaks of each, then times of all in turns. The steps before the usual ones are not counted.

    There is at least one, which makes state; an optimizer that branches on its count takes more. Eager takes as many.
    """
    first_steps = {rival.name: rival.first_steps() for rival in rivals}
    memory = {}
    for rival in rivals:
        rival.steps(max(first_steps.values()) - first_steps[rival.name])
        memory[rival.name] = rival.memory()
    times = _in_turns(rivals, repeats, between) if repeats else {}
    return {rival.name: Measured(memory[rival.name], times.get(rival.name)) for rival in rivals}


def trial_times(rivals: Sequence[Rival], rounds: int) -> dict[str, StepTimes]:
    """Times of usual steps of each, in turns; what comes before those is run and not counted."""
    for rival in rivals:
        rival.first_steps()
    return _in_turns(rivals, rounds)


def _in_turns(rivals: Sequence[Rival], rounds: int, between: Step | None = None) -> dict[str, StepTimes]:
    for rival in rivals:
        rival.steps(1)
    return in_turns({rival.name: rival.timed for rival in rivals}, rounds, between=between)


def measure_memory(runner: PlannedStep, batch: Any) -> StepMeasurement:
    """Peaks of a usual step of a planned one; what comes before that is run and not counted, as by `measure`.

    Inside of the same `state_on_host()` as a step before, where the plan keeps state there.
    """
    for _ in range(_MOST_FIRST_STEPS):
        if runner.is_steady(batch):
            break
        runner(batch)
    return measure_step(lambda: runner(batch), lambda: [*runner.persistent(), *_tensors(batch)])


def rebind(planned: PlannedVariant) -> Callable[[Callable[..., Any], Any], PlannedVariant]:
    """How the schedules of a plan are put on fresh objects of the same factory."""

    def make(step: Callable[..., Any], batch: Any) -> PlannedVariant:
        return replace(planned, captured=rebind_step(planned.captured, step, (batch,)))

    return make


def median_seconds(times: StepTimes | None) -> tuple[float | None, float | None]:
    """Median wall and CPU seconds."""
    if times is None:
        return None, None
    return statistics.median(times.wall_s), statistics.median(times.cpu_s)


def one_number(result: Any) -> float | None:
    """What a step returned, when that is a single number."""
    leaves = leaves_of(result)
    if len(leaves) != 1:
        return None
    leaf = leaves[0]
    if isinstance(leaf, torch.Tensor) and leaf.numel() == 1:
        return float(leaf.detach())
    return float(leaf) if isinstance(leaf, (int, float)) else None


def _tensors(batch: Any) -> list[torch.Tensor]:
    return [leaf for leaf in leaves_of(batch) if isinstance(leaf, torch.Tensor)]


def never_again(_args: Any, _kwargs: Any, _changing: frozenset[str]) -> PlannedVariant:
    """For planned steps whose calls are all alike."""
    raise AssertionError("with on_mismatch='error' nothing is planned again")


@dataclass(frozen=True)
class FactoryOfShape:
    """A factory whose batch has other sizes: entries are left out at the end, or come again from the beginning."""

    factory: Factory
    sizes: tuple[tuple[int, int, int], ...]  # by leaf of the batch and its dim, the size

    @staticmethod
    def of(factory: Factory, dims: Sequence[DynamicDim], shape: Mapping[str, int]) -> FactoryOfShape:
        """A factory of one of the shapes of some dims; `shape` has a size for each of them."""
        sizes = tuple((leaf, axis, shape[dim.name]) for dim in dims for leaf, axis in dim.places)
        return FactoryOfShape(factory, sizes)

    def __call__(self) -> tuple[Any, Any]:
        """The step, and the batch of these sizes."""
        step, batch = check_made(self.factory(), self.factory)
        leaves, spec = flatten(batch)
        for leaf, axis, size in self.sizes:
            leaves[leaf] = _resized(leaves[leaf], axis, size)
        return step, pytree.tree_unflatten(leaves, spec)


def _resized(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """A tensor with another size of one dim, its axes as near to each other as they were. O(size)."""
    if tensor.shape[axis] == size:
        return tensor
    entries = torch.arange(size, device=tensor.device) % tensor.shape[axis]
    found = tensor.detach().index_select(axis, entries)
    strides = dense_strides(found.shape, axes_inwards(tensor))
    made = torch.empty_strided(found.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(found).requires_grad_(tensor.requires_grad)
