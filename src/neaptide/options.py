"""Options that the public functions take by name, typed, and what they have in common: unknown names are refused."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

from neaptide.errors import UsageError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from neaptide.ask import Dims
    from neaptide.copy_engines.copy_engine import SlowMemory
    from neaptide.runtime.arena.plan import ArenaOptions
    from neaptide.transform.rewrite import Rewrite


class SearchOptions(TypedDict, total=False):
    """Of every function that plans.

    Attributes:
        strategy: `default`, or one of `planner.strategies.NAMES`; with ranges in `dynamic` also `by_shape`: a few plans are
            searched for, of which a call runs the fastest within the limit at its shape.
        time_limit_s: of the search of each program; None for no limit.
        work_limit: in changes tried. With a work limit, no time limit and the same costs, the same seed gives the
            same plan file byte for byte: always with `device`, and here while the cache of measured costs is kept.
        seed: of the searches, of a factory and of runs.
        allow_nondeterministic: recompute operations whose kernels give other bits on every run as well (sums by
            atomic additions on a GPU); the numbers then differ from eager's as two eager runs differ.
        checkpoints: `keep`: functions under `torch.utils.checkpoint` leave the state that eager's two runs leave. `undo`:
            they run once, as plain code; running statistics and random numbers are then those without checkpoints.
        slow: where storages wait that the plan moves: on the CPU a file, its folder and the rate that copies are held to.
        interrupt: set it to end the searches with the best plans so far.
        progress: told what is going on.
    """

    strategy: str
    time_limit_s: float | None
    work_limit: int | None
    seed: int
    allow_nondeterministic: bool
    checkpoints: str
    slow: SlowMemory
    interrupt: threading.Event | None
    progress: Callable[[str], None] | None


class ShapesOptions(SearchOptions, total=False):
    """Of `compare_shapes`; `name` is for the report."""

    name: str


class RewriteOptions(SearchOptions, total=False):
    """Of every function that plans for one shape.

    Attributes:
        rewrites: what is done to the graph before it is planned, one after the other: names of rules
            (`neaptide.transform.rules.RULES`), each applied wherever it finds that it can be, and `Rewrite`s of the
            usual step.
        numerics: `bitwise`: every number has eager's bits. `close`: sums may be taken in another order, so that regions
            of the graph may run in parts; what comes out agrees within the tolerance of its dtype.
        workers: with `numerics="close"`, processes that plan variants of the graph side by side; 1 plans them here. None:
            as many as there are cores, where that saves time. Under a limit of work the plan is the same.
        in_place: put results on top of operands that nobody needs any more, where that lowers the peak or leaves less to
            recompute. Every bit is kept. Not done to an atomic step, nor by a strategy that is asked for by name.
    """

    rewrites: Sequence[str | Rewrite]
    numerics: str
    workers: int | None
    in_place: bool


class PlanOptions(RewriteOptions, total=False):
    """Of `plan`.

    Attributes:
        device: name of a preset to plan for; costs are then estimated. None means this machine.
        atomic: keep every update behind everything that can fail, so that a step that dies in its forward or
            backward leaves the model as it was; the plan says what that costs.
        dynamic: dims that may vary, as for `compile_step`: one plan for all shapes in their ranges. The arguments are one
            of these shapes.
    """

    device: str | None
    atomic: bool
    dynamic: Dims | None


class TrialOptions(RewriteOptions, total=False):
    """Of `plan_by_trials`: `atomic` as for `plan`, and no `device` but this machine."""

    device: str | None
    atomic: bool


class StepOptions(RewriteOptions, total=False):
    """Of `compile_step`.

    Attributes:
        atomic: as for `plan`.
        arena: run inside one block of memory, every result at a planned address; `ArenaOptions` say how.
        eviction: nothing is searched for. The step runs in its own order, and where the budget is reached the policy of this
            name (`planner.points.decide.POLICIES`) decides, without a look ahead, what is evicted and recomputed later
            (Kirisame et al., ICLR 2021).
        trials: so many plans, 2 to 7, are made for limits around the one asked for, sharing the time limit. At the first
            usual call they run in turns with the step itself, and what they change is put back from a copy in the host's
            memory. The least peak that measured within the limit of time is taken, or the fastest plan where none is within
            it; for a limit of bytes the fastest.
        dynamic: by argument of the step, or a path such as `batch.input_ids`, dims that may vary, with ranges or as
            `torch.export.Dim`s: `{"batch": {0: (1, 64), 1: (16, 4096)}}`. One program decides at each call what is evicted
            for its shapes, and stays within the limit for all of them; a share is of the largest. Calls of other shapes are
            planned by themselves, for the same bytes. With `numerics="close"` there is a second program in which a region
            runs in parts, and a call runs the faster of both within the limit. With an arena each shape that is met gets a
            layout of its own. `auto`, the default: dims that vary are found by watching. The first call is planned for its
            shape; when a later one has other sizes, those that differ become dims, and one program serves all sizes of them.
            A share is then of the peak at the shape of each call. Where a dim cannot vary, a warning names it, and each
            shape is planned by itself, as with False. True is `auto`, and refuses what excludes it.
    """

    atomic: bool
    arena: bool | ArenaOptions
    eviction: str | None
    trials: int | None
    dynamic: Dims | Literal["auto"] | bool | None


class ComparisonOptions(RewriteOptions, total=False):
    """Of `compare`; rewrites, numerics and the place of results are those of all rows but `baseline`.

    Attributes:
        device: a preset to plan for; then nothing is run and all numbers are predictions.
        arena: add a row `arena`: the plan, or the baseline where there is none, as `apply(arena=True)` runs it.
        trials: run so many plans around the limit, and take one by what they measured for the row `plan`. The times in
            the table are measured anew.
    """

    device: str | None
    arena: bool | ArenaOptions
    trials: int | None


class ProfileOptions(TypedDict, total=False):
    """Of `profile`.

    Attributes:
        device: name of a preset (see `neaptide devices`): says whether the step fits there. Nothing of model size is
            allocated. None means this machine.
        seed: recorded.
        audit: run distinct operations alone, one at a time, to learn their workspace and time; with a preset, or
            for a model without bytes (`device="meta"`), they are estimated instead.
        refresh: run those again that were run before. Results are kept in a cache for this and later calls; they are
            worth renewing when the machine was busy with other things at the time.
        progress: told what is going on.
        dynamic: dims that may vary, as for `compile_step`: the report then tells for which sizes one program holds, and
            its peak at the ends of the ranges.
        fit: bytes, such as `"24GiB"`: the report then tells the largest shapes in the ranges of one or two dims that
            stay within them, in program order and with a program for all shapes. A range may be without end.
        curves: tell peaks along the ranges of `dynamic` as well, for a picture (`report.charts.pictures`).
    """

    device: str | None
    seed: int
    audit: bool
    refresh: bool
    progress: Callable[[str], None] | None
    dynamic: Dims | None
    fit: str | int | None
    curves: bool


class RunOptions(TypedDict, total=False):
    """Of `run`.

    Attributes:
        arena: run inside one block of memory, every result at a planned address; `ArenaOptions` say how.
        allow_nondeterministic: needed for a plan that was made with it: a file cannot allow itself other bits.
        slow: where storages wait that the plan moves: on the CPU a file, its folder and the rate that copies are held to.
    """

    arena: bool | ArenaOptions
    allow_nondeterministic: bool
    slow: SlowMemory


class ApplyOptions(RunOptions, total=False):
    """Of `apply`; `time_limit_s` is for planning again."""

    time_limit_s: float | None


def check_names(function: str, given: Collection[str], known: Collection[str]) -> None:
    """Refuse options that a function does not take.

    Raises:
        UsageError: naming the nearest that it takes.
    """
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise UsageError(
                f"{function} takes no option {name!r}",
                next_step=f"{hint}its options are {', '.join(sorted(known))}",
            )
