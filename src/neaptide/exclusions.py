"""Which options exclude each other: one table, held against what is asked for before anything is loaded or captured."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from neaptide.ask import BY_SHAPE, CLOSE, DEFAULT_STRATEGY, THIS_MACHINE
from neaptide.budget import Budget
from neaptide.errors import UsageError

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
