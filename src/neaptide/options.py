"""Options that the public functions take by name, typed: unknown names are refused, and what excludes each other.

Exclusions are one table, held against what is asked for before anything is loaded or captured.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from neaptide.ask import BY_SHAPE, CLOSE, DEFAULT_STRATEGY, INDUCTOR, THIS_MACHINE
from neaptide.budget import Budget
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
        lowering: `aten`: the kernels of eager. `inductor`: groups of operations run as one kernel each, which Inductor
            compiles when the step is planned; what is inside takes no bytes. Results agree within the tolerance of their
            dtype. Groups that are faster apart stay apart.
        workers: with `numerics="close"`, processes that plan variants of the graph side by side; 1 plans them here. None:
            as many as there are cores, where that saves time. Under a limit of work the plan is the same.
        in_place: put results on top of operands that nobody needs any more, where that lowers the peak or leaves less to
            recompute. Every bit is kept. Not done to an atomic step, nor by a strategy that is asked for by name.
    """

    rewrites: Sequence[str | Rewrite]
    numerics: str
    lowering: str
    workers: int | None
    in_place: bool


class PlanOptions(RewriteOptions, total=False):
    """Of `plan`.

    Attributes:
        device: name of a preset to plan for; costs are then estimated. None means this machine.
        atomic: keep every update after everything that can fail, so that a step that dies in its forward or
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
            name (`planner.points.choices.decide.POLICIES`) decides, without a look ahead, what is evicted and recomputed later
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


WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "also": ("further strategies", "--also"),
    "arena": ("an arena", "--arena"),
    "at": ("shapes to compare at", "--at"),
    "atomic": ("atomic", "--atomic"),
    "by_shape": ("plans by shape", "--strategy by_shape"),
    "close": ('numerics="close"', "--numerics close"),
    "device": ("another device", "--device"),
    "dynamic": ("dynamic", "--dynamic"),
    "eviction": ("eviction", "eviction"),
    "host": ("room on the host", "--host"),
    "inductor": ('lowering="inductor"', "--lowering inductor"),
    "latency": ("a latency", "--latency"),
    "no_bytes": ("a budget without a peak", "a budget without --peak"),
    "no_eager": ("eager=False", "--no-eager"),
    "no_limit": ("a budget without a limit", "a budget without --peak or --latency"),
    "peak_min": ('peak="min"', "--peak min"),
    "rewrites": ("rewrites", "--rewrite"),
    "saved": ("a saved plan", "a saved plan"),
    "state_between": ("state_between_steps", "--state-between-steps"),
    "strategy": ("a strategy", "--strategy"),
    "trials": ("trials", "--trials"),
    "verify": ("verify=True", "--verify"),
}
"""What can be asked for: in Python, and on the command line."""


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Things that cannot be asked for together, by their keys in `WORDS`, why, and what to leave out."""

    first: str
    second: str
    why: str
    next_step: str
    where: tuple[str, ...] = ()  # further things with which alone the two exclude each other
    task: str = ""  # `compare`, where this holds of comparisons alone

    def holds(self, asked: Collection[str], task: str) -> bool:
        """Whether all of it is asked for."""
        is_here = not self.task or self.task == task
        return is_here and all(one in asked for one in (self.first, self.second, *self.where))


_ONE_OUT: Final = "leave one of them out"
_NO_PLAN: Final = "a policy decides at the calls what is evicted; there is no plan"
_BY_CALL: Final = "one program for all shapes decides while it runs what is evicted for the shapes of a call"
_BYTES_ALONE: Final = (
    "give a limit in bytes alone, or leave dynamic out: each shape is then planned by itself"
)
_BY_SIZES: Final = "a fused kernel is compiled for the sizes of a call"
_FOUR_ROWS: Final = (
    "the plan for all shapes is compared with eager and padding, on this machine, within bytes"
)

EXCLUSIONS: Final = (
    *(
        Exclusion("eviction", other, _NO_PLAN, _ONE_OUT)
        for other in (
            *("strategy", "by_shape", "atomic", "arena", "latency"),
            *("state_between", "rewrites", "close", "trials"),
        )
    ),
    *(
        Exclusion("dynamic", other, _BY_CALL, _BYTES_ALONE)
        for other in (
            *("strategy", "eviction", "atomic", "latency"),
            *("state_between", "peak_min", "rewrites", "trials"),
        )
    ),
    *(
        Exclusion("dynamic", other, _FOUR_ROWS, "compare with --dynamic and --peak", task="compare")
        for other in ("device", "also", "arena", "close", "no_bytes")
    ),
    Exclusion(
        "close",
        "saved",
        "the number of parts is decided beside evictions, in programs with points, and a plan file has no such parts",
        'leave numerics out, or call compile_step with dynamic= and numerics="close"',
        where=("dynamic",),
    ),
    Exclusion(
        "close",
        "by_shape",
        "the number of parts is decided beside evictions, in programs with points",
        "leave one of the two out",
        where=("dynamic",),
    ),
    *(
        Exclusion(
            "arena",
            other,
            "a layout by shape is for one program with points, and nothing in a block can leave it",
            _ONE_OUT,
            where=("dynamic",),
        )
        for other in ("by_shape", "close")
    ),
    Exclusion(
        "arena",
        "host",
        "the bytes of one block cannot be given up one by one",
        "leave the arena out, or the room on the host",
    ),
    Exclusion(
        "arena",
        "device",
        "operations must be run to learn which of them write where they are told",
        "leave the device out, or the arena",
    ),
    *(
        Exclusion("inductor", other, _BY_SIZES, 'leave it out, or lowering="inductor"')
        for other in ("dynamic", "by_shape", "eviction")
    ),
    Exclusion("inductor", "arena", "a fused kernel allocates its results itself", _ONE_OUT),
    Exclusion("inductor", "atomic", "a fused update overwrites several states at once", _ONE_OUT),
    Exclusion("inductor", "device", "fused kernels are compiled and timed on this machine", _ONE_OUT),
    Exclusion(
        "trials", "device", "trials run the plans, on this machine", "leave the device out, or the trials"
    ),
    Exclusion(
        "trials",
        "no_limit",
        "plans are tried against a limit",
        'give a latency such as "+10%", or a peak such as "60%", or leave the trials out',
    ),
    *(
        Exclusion(
            "state_between",
            other,
            "state that leaves behind its update can no longer be put back as it was",
            _ONE_OUT,
        )
        for other in ("atomic", "trials")
    ),
    Exclusion(
        "atomic",
        "close",
        "what waits for everything that can fail is not known of a loop",
        'leave atomic out, or numerics="close"',
    ),
    Exclusion("verify", "no_eager", "numbers are compared with those of eager", _ONE_OUT),
)
"""All of them; the first that holds is told."""


def asked_for(options: Mapping[str, Any]) -> set[str]:
    """What some options ask for, by their names in Python, in keys of `WORDS`; `saved`: the plan is to be a file."""
    get = options.get
    budget: Budget = get("budget") or Budget()
    strategy, is_min = get("strategy", DEFAULT_STRATEGY), budget.is_min
    is_asked = {
        "also": get("also"),
        "arena": get("arena"),
        "atomic": get("atomic"),
        "by_shape": strategy == BY_SHAPE,
        "close": get("numerics") == CLOSE,
        "device": get("device") not in (None, THIS_MACHINE),
        "dynamic": isinstance(get("dynamic"), Mapping) and get("dynamic"),
        "eviction": get("eviction") is not None,
        "host": budget.host,
        "inductor": get("lowering") == INDUCTOR,
        "latency": budget.latency is not None,
        "no_bytes": budget.peak is None,
        "no_eager": not get("eager", True),
        "no_limit": budget.latency is None and (budget.peak is None or is_min),
        "peak_min": is_min,
        "rewrites": get("rewrites"),
        "saved": get("saved"),
        "state_between": budget.state_between_steps,
        "strategy": strategy not in (DEFAULT_STRATEGY, BY_SHAPE),
        "trials": get("trials") is not None,
        "verify": get("verify") is True,
    }
    return {what for what, is_so in is_asked.items() if is_so}


def refuse_exclusions(asked: Collection[str], *, task: str = "", is_typed: bool = False) -> None:
    """Refuse things, keys of `WORDS`, that exclude each other; in the words of the command line where they are typed."""
    for one in EXCLUSIONS:
        if one.holds(asked, task):
            first, second = (WORDS[what][is_typed] for what in (one.first, one.second))
            others = "".join(f" where {WORDS[what][is_typed]} is given" for what in one.where)
            raise UsageError(
                f"{first} and {second} exclude each other{others}", why=one.why, next_step=one.next_step
            )
