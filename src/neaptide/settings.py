"""One table of what neaptide can be told: names, defaults, how each value is read, and help.

The command line makes its options of it, the environment and TOML files are read by it, and the functions of Python take
their defaults and checks from it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
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
    """What is known of a setting beside its value.

    Attributes:
        name: in Python; with `-` for `_` on the command line and in files.
        default: where nothing is given.
        read: a value in the type of the setting, from text, TOML or Python.
        help: of the command line, a sentence.
        metavar: what its value is called there; empty for yes or no.
    """

    name: str
    default: Any
    read: Callable[[Any], Any]
    help: str
    metavar: str = ""

    @property
    def is_yes_or_no(self) -> bool:
        """Whether it is given as a flag."""
        return self.read in (read_boolean, read_verify)

    @property
    def is_many(self) -> bool:
        """Whether it may be given again and again."""
        return self.read is read_texts


def setting(default: Any, read: Callable[[Any], Any], help_text: str, *, metavar: str = "") -> Any:
    """A field of `Settings`; `{default}` in its help is filled in."""
    told = help_text.replace("{default}", str(default))
    return field(default=default, metadata={"read": read, "help": told, "metavar": metavar})


@dataclass(frozen=True, slots=True)
class Settings:
    """What a command can be told, whichever way it is told; the help of each setting says what it is."""

    peak: str | None = setting(
        None, read_peak, "Highest bytes: 20GiB, 60% of the baseline, -30%, or min.", metavar="SIZE"
    )
    latency: str | None = setting(
        None, read_latency, "Longest step: 250ms, or +10% over the baseline.", metavar="TIME"
    )
    host: str | None = setting(
        None,
        read_host,
        "Host memory for storages that wait there: 8GiB, say; by default nothing is moved.",
        metavar="SIZE",
    )
    state_between_steps: bool = setting(
        False, read_boolean, "Parameters and optimizer states may stay on the host between two steps, too."
    )
    host_rate: str = setting(
        "200MB",
        read_size,
        "Bytes per second to which copies of storages that wait in a file are held; {default} by default.",
        metavar="SIZE",
    )
    host_folder: str | None = setting(
        None, read_text, "Folder of that file; by default the system's for temporary files.", metavar="FOLDER"
    )
    device: str | None = setting(
        None,
        read_text,
        "Plan for this device, see `neaptide devices`; by default this machine.",
        metavar="NAME",
    )
    time_limit: str | None = setting(None, read_duration, "Stop planning after this long.", metavar="TIME")
    work_limit: int | None = setting(
        None,
        integer_reader(1),
        "Stop planning after N changes tried, whatever time it takes: the same plan on every machine.",
        metavar="N",
    )
    workers: int | None = setting(
        None,
        integer_reader(1),
        "Processes that plan variants side by side, with --numerics close; by default one a core, where that saves time.",
        metavar="N",
    )
    seed: int = setting(
        0, integer_reader(0, HIGHEST_SEED), "Seed of all random numbers; {default} by default.", metavar="N"
    )
    strategy: str = setting(DEFAULT_STRATEGY, read_text, "Strategy of the planner.", metavar="NAME")
    also: tuple[str, ...] = setting(
        (), read_texts, "Compare with this strategy as well; repeatable.", metavar="STRATEGY"
    )
    method: tuple[str, ...] = setting(
        (),
        read_texts,
        "Method to run, or all; repeatable. By default as many as it takes to prove the result.",
        metavar="NAME",
    )
    capacity: str | None = setting(
        None, read_size, "Bytes that must be enough; by default as few as possible.", metavar="SIZE"
    )
    alignment: int | None = setting(
        None,
        read_power_of_two,
        "Least alignment of every buffer; 64 by default for a program, that of the file for a CSV.",
        metavar="BYTES",
    )
    workspace: bool = setting(
        False,
        read_boolean,
        "Place the scratch bytes of each operation too; by default its kernel allocates them.",
    )
    points: int = setting(
        20,
        integer_reader(2),
        "Budgets from the peak down to the lowest one found; {default} by default.",
        metavar="N",
    )
    repeats: int = setting(
        5, integer_reader(1), "Timed steps of each program; {default} by default.", metavar="N"
    )
    steps: int = setting(3, integer_reader(1), "Steps to run; {default} by default.", metavar="N")
    verify: bool | str | None = setting(
        None,
        read_verify,
        "Compare loss, gradients and parameters with eager; `compare` does it by default, `run` does not.",
    )
    strict: bool = setting(
        False, read_boolean, "A planned step that gives other bits than eager is an error, not a warning."
    )
    eager: bool = setting(True, read_boolean, "Measure eager as well.")
    atomic: bool = setting(False, read_boolean, "Keep all updates behind the last operation that can fail.")
    allow_nondeterministic: bool = setting(
        False, read_boolean, "Recompute operations too whose kernels give other bits on every run."
    )
    numerics: str = setting(
        BITWISE,
        one_of_reader(BITWISE, CLOSE),
        "Numbers of the plan: bitwise (default) as eager's, or close: sums may be taken in another order.",
        metavar="HOW",
    )
    trials: int | None = setting(
        None,
        integer_reader(2, MOST_TRIALS),
        "Plan N times around the limit, run the plans, and take the best that measured within it.",
        metavar="N",
    )
    checkpoints: str = setting(
        "keep",
        one_of_reader("keep", "undo"),
        "Functions under torch.utils.checkpoint: keep (default) the state that eager's two runs leave, or undo: run once.",
        metavar="HOW",
    )
    in_place: bool = setting(
        True,
        read_boolean,
        "Put results on top of operands that nobody needs any more, where that lowers the peak; bits are kept.",
    )
    rewrite: tuple[str, ...] = setting(
        (),
        read_texts,
        "Rewrite the graph by this rule wherever it applies, and plan the result; repeatable.",
        metavar="RULE",
    )
    refresh: bool = setting(
        False,
        read_boolean,
        "Time operations again that were timed before, on a machine that was busier than now, say.",
    )
    dynamic: tuple[str, ...] = setting(
        (),
        read_texts,
        "Dims of an argument that may vary, such as batch:0=2..64,1=16..4096 (dim=smallest..largest); repeatable.",
        metavar="DIMS",
    )
    at: tuple[str, ...] = setting(
        (),
        read_texts,
        "Compare at this shape of --dynamic, such as 8x512: a size for each dim, in order; repeatable.",
        metavar="SHAPE",
    )
    fit: str | None = setting(
        None, read_size, "Find the largest shapes within --dynamic that fit into 24GiB, say.", metavar="SIZE"
    )
    arena: bool = setting(
        False, read_boolean, "Run inside one block of memory, results at planned addresses."
    )
    arena_copies: str = setting(
        "cheap",
        one_of_reader("cheap", "all", "none"),
        "Results copied into the arena where operations do not write there: cheap (default), all or none.",
        metavar="WHICH",
    )

    @property
    def verifies(self) -> bool | None:
        """Whether numbers are compared with eager's; None for what the command does by itself."""
        return self.verify if self.verify is None else self.verify not in {False, "never"}

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


TABLE: Final = {made.name: SettingInfo(made.name, made.default, **made.metadata) for made in fields(Settings)}
"""All settings, by name."""
DEFAULTS: Final = Settings()


def read_setting(name: str, value: Any, where: str) -> Any:
    """A value in the type of its setting.

    Raises:
        UsageError: naming the place that the value stands in.
    """
    try:
        return TABLE[name].read(value)
    except UsageError as error:
        raise type(error)(error.what, where=where, why=error.why, next_step=error.next_step) from error


def verified_calls(verify: bool | str | None) -> str:
    """Which planned calls are verified, as an argument says, else the environment, else `first`.

    Raises:
        UsageError: naming the argument or the variable.
    """
    where = "verify"
    if verify is None:
        where = "NEAPTIDE_VERIFY"
        verify = os.environ.get(where, "first")
    read = read_setting("verify", verify, where)
    return read if isinstance(read, str) else "first" if read else "never"


def check_setting(name: str, value: Any) -> None:
    """Refuse a value that an argument of a Python function cannot have.

    Raises:
        UsageError: naming the argument, what it was given, and why not.
    """
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
