"""One table of what neaptide can be told: names, defaults, how each value is read, and help.

The command line makes its options of it, the environment and TOML files are read by it, and the functions of Python take
their defaults and checks from it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from neaptide.ask import BITWISE, CLOSE, DEFAULT_STRATEGY
from neaptide.errors import UsageError
from neaptide.setting_readers import (
    integer_reader,
    one_of_reader,
    read_boolean,
    read_duration,
    read_host,
    read_latency,
    read_peak,
    read_power_of_two,
    read_size,
    read_text,
    read_texts,
    read_verify,
)
from neaptide.units import parse_duration

HIGHEST_SEED: Final = 2**63 - 1  # that torch takes
MOST_TRIALS: Final = 7
DEFAULT_TIME_LIMIT_S: Final = 20.0
CURVE_TIME_LIMIT_S: Final = 0.03
"""For each operation: curves take about a third of it where nothing else runs."""
DEFAULT_TIME_LIMIT: Final = f"{DEFAULT_TIME_LIMIT_S:g}s"
CURVE_TIME_LIMIT: Final = f"{CURVE_TIME_LIMIT_S * 1e3:g}ms an operation, at least {DEFAULT_TIME_LIMIT}"


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """What is known of a setting beside its value."""

    name: str  # in Python; with `-` for `_` on the command line and in files
    default: Any
    read: Callable[[Any], Any]  # a value in the type of the setting, from text, TOML or Python
    metavar: str  # of its value on the command line; empty for yes or no
    help: str  # a sentence; `{default}` in it is filled in

    @property
    def is_yes_or_no(self) -> bool:
        """Whether it is given as a flag."""
        return self.read in (read_boolean, read_verify)

    @property
    def is_many(self) -> bool:
        """Whether it may be given again and again."""
        return self.read is read_texts


# Its default, what reads it, and what its value is called on the command line; nothing for yes or no.
_KINDS: Final[dict[str, tuple[Any, Callable[[Any], Any], str]]] = {
    "peak": (None, read_peak, "SIZE"),
    "latency": (None, read_latency, "TIME"),
    "host": (None, read_host, "SIZE"),
    "state_between_steps": (False, read_boolean, ""),
    "host_rate": ("200MB", read_size, "SIZE"),
    "host_folder": (None, read_text, "FOLDER"),
    "device": (None, read_text, "NAME"),
    "time_limit": (None, read_duration, "TIME"),
    "work_limit": (None, integer_reader(1), "N"),
    "workers": (None, integer_reader(1), "N"),
    "seed": (0, integer_reader(0, HIGHEST_SEED), "N"),
    "strategy": (DEFAULT_STRATEGY, read_text, "NAME"),
    "also": ((), read_texts, "STRATEGY"),
    "method": ((), read_texts, "NAME"),
    "capacity": (None, read_size, "SIZE"),
    "alignment": (None, read_power_of_two, "BYTES"),
    "workspace": (False, read_boolean, ""),
    "points": (20, integer_reader(2), "N"),
    "repeats": (5, integer_reader(1), "N"),
    "steps": (3, integer_reader(1), "N"),
    "verify": (None, read_verify, ""),
    "strict": (False, read_boolean, ""),
    "eager": (True, read_boolean, ""),
    "atomic": (False, read_boolean, ""),
    "allow_nondeterministic": (False, read_boolean, ""),
    "numerics": (BITWISE, one_of_reader(BITWISE, CLOSE), "HOW"),
    "trials": (None, integer_reader(2, MOST_TRIALS), "N"),
    "checkpoints": ("keep", one_of_reader("keep", "undo"), "HOW"),
    "in_place": (True, read_boolean, ""),
    "rewrite": ((), read_texts, "RULE"),
    "refresh": (False, read_boolean, ""),
    "dynamic": ((), read_texts, "DIMS"),
    "at": ((), read_texts, "SHAPE"),
    "fit": (None, read_size, "SIZE"),
    "arena": (False, read_boolean, ""),
    "arena_copies": ("cheap", one_of_reader("cheap", "all", "none"), "WHICH"),
}
_HELP: Final = {
    "peak": "Highest bytes: 20GiB, 60% of the baseline, -30%, or min.",
    "latency": "Longest step: 250ms, or +10% over the baseline.",
    "host": "Host memory for storages that wait there: 8GiB, say; by default nothing is moved.",
    "state_between_steps": "Parameters and optimizer states may stay on the host between two steps, too.",
    "host_rate": "Bytes per second to which copies of storages that wait in a file are held; {default} by default.",
    "host_folder": "Folder of that file; by default the system's for temporary files.",
    "device": "Plan for this device, see `neaptide devices`; by default this machine.",
    "time_limit": "Stop planning after this long.",
    "work_limit": "Stop planning after N changes tried, whatever time it takes: the same plan on every machine.",
    "workers": "Processes that plan variants side by side, with --numerics close; by default one a core, where that saves time.",
    "seed": "Seed of all random numbers; {default} by default.",
    "strategy": "Strategy of the planner.",
    "also": "Compare with this strategy as well; repeatable.",
    "method": "Method to run, or all; repeatable. By default as many as it takes to prove the result.",
    "capacity": "Bytes that must be enough; by default as few as possible.",
    "alignment": "Least alignment of every buffer; 64 by default for a program, that of the file for a CSV.",
    "workspace": "Place the scratch bytes of each operation too; by default its kernel allocates them.",
    "points": "Budgets from the peak down to the lowest one found; {default} by default.",
    "repeats": "Timed steps of each program; {default} by default.",
    "steps": "Steps to run; {default} by default.",
    "verify": "Compare loss, gradients and parameters with eager; `compare` does it by default, `run` does not.",
    "strict": "A planned step that gives other bits than eager is an error, not a warning.",
    "eager": "Measure eager as well.",
    "atomic": "Keep all updates behind the last operation that can fail.",
    "allow_nondeterministic": "Recompute operations too whose kernels give other bits on every run.",
    "numerics": "Numbers of the plan: bitwise (default) as eager's, or close: sums may be taken in another order.",
    "trials": "Plan N times around the limit, run the plans, and take the best that measured within it.",
    "checkpoints": "Functions under torch.utils.checkpoint: keep (default) the state that eager's two runs leave, or undo: run once.",
    "in_place": "Put results on top of operands that nobody needs any more, where that lowers the peak; bits are kept.",
    "rewrite": "Rewrite the graph by this rule wherever it applies, and plan the result; repeatable.",
    "refresh": "Time operations again that were timed before, on a machine that was busier than now, say.",
    "dynamic": "Dims of an argument that may vary, such as batch:0=2..64,1=16..4096 (dim=smallest..largest); repeatable.",
    "at": "Compare at this shape of --dynamic, such as 8x512: a size for each dim, in order; repeatable.",
    "fit": "Find the largest shapes within --dynamic that fit into 24GiB, say.",
    "arena": "Run inside one block of memory, results at planned addresses.",
    "arena_copies": "Results copied into the arena where operations do not write there: cheap (default), all or none.",
}
TABLE: Final = {
    name: SettingInfo(name, default, read, metavar, _HELP[name].replace("{default}", str(default)))
    for name, (default, read, metavar) in _KINDS.items()
}
"""All settings, by name."""


class Settings(SimpleNamespace):
    """What a command can be told, whichever way it is told: a value by name of each setting of `TABLE`."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{name: given.get(name, made.default) for name, made in TABLE.items()})

    @property
    def verifies(self) -> bool | None:
        """Whether numbers are compared with eager's; None for what the command does by itself."""
        return None if self.verify is None else self.verify not in {False, "never"}

    @property
    def time_limit_s(self) -> float | None:
        """Seconds that planning may take; None without a limit."""
        if self.time_limit is not None:
            return parse_duration(self.time_limit)
        return DEFAULT_TIME_LIMIT_S if self.work_limit is None else None

    def curve_time_limit_s(self, operations: int) -> float | None:
        """Seconds that the plans of a whole curve may take; by default more for a larger program."""
        is_default = self.time_limit is None and self.work_limit is None
        return max(DEFAULT_TIME_LIMIT_S, CURVE_TIME_LIMIT_S * operations) if is_default else self.time_limit_s


DEFAULTS: Final = Settings()


def read_setting(name: str, value: Any, where: str) -> Any:
    """A value in the type of its setting."""
    try:
        return TABLE[name].read(value)
    except UsageError as error:
        raise type(error)(error.what, where=where, why=error.why, next_step=error.next_step) from error


def verified_calls(verify: bool | str | None) -> str:
    """Which planned calls are verified, as an argument says, else the environment, else `first`."""
    where = "verify"
    if verify is None:
        where = "NEAPTIDE_VERIFY"
        verify = os.environ.get(where, "first")
    read = read_setting("verify", verify, where)
    return read if isinstance(read, str) else "first" if read else "never"


def check_setting(name: str, value: Any) -> None:
    """Refuse a value that an argument of a Python function cannot have."""
    made = TABLE[name]
    try:
        is_itself = made.read(value) == value
        why = "text is for the command line"
    except UsageError as error:
        is_itself, why = False, error.what
    if not is_itself:
        raise UsageError(
            f"{name}={value!r} is not possible", why=why, next_step=f"the default is {made.default!r}"
        )
