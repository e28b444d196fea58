"""Ask: what is wanted of a plan, in one object. Keywords, the command line, the environment and TOML files build it once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from neaptide.budget import Budget
from neaptide.outcome import Limits

if TYPE_CHECKING:
    from neaptide.copy_engines.copy_engine import SlowMemory
    from neaptide.runtime.arena.plan import ArenaOptions
    from neaptide.transform.rewrite import Rewrite

DEFAULT_STRATEGY: Final = "default"
"""The name of the portfolio, among those of single strategies."""
BY_SHAPE: Final = "by_shape"
"""The strategy that makes a few plans, of which a call runs the fastest within the limit at its shape."""
BITWISE: Final = "bitwise"
"""Every number has the bits that eager gives."""
CLOSE: Final = "close"
"""Sums may be taken in another order."""
ATEN: Final = "aten"
"""Operations run as the kernels of eager."""
INDUCTOR: Final = "inductor"
"""Groups of operations run as kernels that Inductor compiles."""
THIS_MACHINE: Final = "this-machine"
THE_DEVICE: Final = "device"  # what `--fit` without a size asks about
RUNS: Final = 100
"""Of a step that is planned while it trains, for `Limits`. Such a step runs thousands of times, but a search saves a small part
of what is recomputed, not all of it."""

Dims: TypeAlias = Mapping[str, Mapping[int, Any]]
LeaveOut: TypeAlias = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class OneShape:
    """One plan, for the shape of a call; `arena`: inside one block of memory."""

    arena: ArenaOptions | None = None


@dataclass(frozen=True, slots=True)
class ByTrials:
    """So many plans around the limit, which run, to take one by what they measured."""

    count: int
    arena: ArenaOptions | None = None


@dataclass(frozen=True, slots=True)
class WatchedSizes:
    """One plan for the shape of the first call; sizes that differ later become dims, and one program serves all of them."""


@dataclass(frozen=True, slots=True)
class Points:
    """One program for all shapes in ranges, which decides at each call what is evicted."""

    dims: Dims
    arena: ArenaOptions | None = None


@dataclass(frozen=True, slots=True)
class ByShape:
    """A few plans for all shapes in ranges."""

    dims: Dims


@dataclass(frozen=True, slots=True)
class Evicting:
    """No plan: a policy decides while the step runs what is evicted and recomputed."""

    policy: str


Mode: TypeAlias = OneShape | ByTrials | WatchedSizes | Points | ByShape | Evicting
"""How a step runs; what excludes each other cannot be written down."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step runs, and what is allowed there.

    Attributes:
        device: name of a preset that the plan is for; None for this machine.
        slow: where storages wait that a plan moves; None: the default place.
        bits_may_vary: recompute operations too whose bits differ from run to run.
    """

    device: str | None = None
    slow: SlowMemory | None = None
    bits_may_vary: bool = False


@dataclass(frozen=True)
class Ask:
    """What is wanted of a plan.

    Attributes:
        budget: what the step may use.
        strategy: `default` for the portfolio, or the name of one strategy.
        limits: time of the searches of all programs together, most of it for the steady one; work of each; seed.
        atomic: keep updates after everything that can fail.
        interrupt: set it to get the best plan so far.
        rewrites: what is done to the graphs first, one after the other: names of rules, each applied wherever it finds
            that it can be, and rewrites of the usual step.
        numerics: `close` where sums may be taken in another order, so that the graph may run in parts.
        lowering: `inductor` where groups of operations run as one kernel each; the rule `fusion` is then among `rewrites`.
        workers: processes that plan variants side by side; None: as many as save time.
        in_place: results lie on top of operands that nobody needs any more, where that leaves less bytes or time.
        checkpoints: `keep` the state that checkpointed functions leave in eager, or `undo` the checkpoints.
        place: where the step runs.
        mode: how the step runs.
        least_bytes: allowed in any case, up to the baseline: those of an earlier plan of the same step.
        leave_out: told the rule and the reason where a rewrite that is not legal in a graph is left out. None: that is
            an error.
        explains: a report is made of the plan, which then tells axes.
    """

    budget: Budget
    strategy: str = DEFAULT_STRATEGY
    limits: Limits = field(default_factory=Limits)
    atomic: bool = False
    interrupt: threading.Event | None = None
    rewrites: tuple[str | Rewrite, ...] = ()
    numerics: str = BITWISE
    lowering: str = ATEN
    workers: int | None = None
    in_place: bool = True
    checkpoints: str = "keep"
    place: Place = Place()
    mode: Mode = field(default_factory=OneShape)
    least_bytes: int = 0
    leave_out: LeaveOut | None = None
    explains: bool = True

    @property
    def dims(self) -> Dims | None:
        """Dims that may vary, with their ranges; None for one shape."""
        return self.mode.dims if isinstance(self.mode, Points | ByShape) else None

    @property
    def arena(self) -> ArenaOptions | None:
        """How an arena is made; None for none."""
        return self.mode.arena if isinstance(self.mode, OneShape | ByTrials | Points) else None
