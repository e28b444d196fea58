"""One table of what neaptide can be told: names, defaults, how each value is read, and help.

The command line makes its options of it, the environment and TOML files are read by it, and the functions of Python take
their defaults and checks from it. A reader gives a value of text, TOML or Python in the type of its setting, or raises
`UsageError` (of which `InvalidBudget` is one).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from neaptide.ask import ATEN, BITWISE, CLOSE, DEFAULT_STRATEGY, INDUCTOR, THE_DEVICE
from neaptide.budget import Budget
from neaptide.errors import UsageError
from neaptide.units import parse_duration, parse_size

HIGHEST_SEED: Final = 2**63 - 1  # that torch takes
MOST_TRIALS: Final = 7
DEFAULT_TIME_LIMIT_S: Final = 20.0
CURVE_TIME_LIMIT_S: Final = 0.03
"""For each operation: curves take about a third of it where nothing else runs."""
DEFAULT_TIME_LIMIT: Final = f"{DEFAULT_TIME_LIMIT_S:g}s"
CURVE_TIME_LIMIT: Final = f"{CURVE_TIME_LIMIT_S * 1e3:g}ms an operation, at least {DEFAULT_TIME_LIMIT}"
_SHAPE: Final = re.compile(r"\d+(x\d+)*")
_EVERY: Final = re.compile(r"every [1-9]\d*")
_DIM: Final = re.compile(r"(\d+)\s*=\s*(\d+)\s*\.\.\s*(\d*)")
_YES_NO: Final = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(
    ("0", "false", "no", "off"), False
)


def read_text(value: Any) -> str:
    """Text that is not empty."""
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise UsageError(f"{value!r} is no name", next_step="write some text")


def _text_reader(check: Callable[[Any], object], *, is_time: bool = False) -> Callable[[Any], str]:
    """Reads text that a check lets pass; a plain number that is a time is seconds, text has to say so."""

    def read(value: Any) -> str:
        is_number = is_time and isinstance(value, int | float) and not isinstance(value, bool)
        text = f"{value}s" if is_number else str(value).strip()
        check(text if is_time else value)
        return text

    return read


_read_size: Final = _text_reader(parse_size)
_read_fit: Final = _text_reader(lambda value: value == THE_DEVICE or parse_size(value))
_read_peak: Final = _text_reader(Budget)
_read_host: Final = _text_reader(lambda value: Budget(host=value))
_read_latency: Final = _text_reader(lambda text: Budget(None, latency=text), is_time=True)
_read_duration: Final = _text_reader(parse_duration, is_time=True)


def integer_reader(lowest: int, highest: int | None = None) -> Callable[[Any], int]:
    """Reads whole numbers between two, both included."""

    def read(value: Any) -> int:
        try:
            number = int(value) if isinstance(value, str) else value
        except ValueError:
            number = None
        if isinstance(number, bool) or not isinstance(number, int) or number < lowest:
            raise UsageError(f"{value!r} is not a whole number of at least {lowest}")
        if highest is not None and number > highest:
            raise UsageError(f"{value!r} is more than {highest}")
        return number

    return read


def read_power_of_two(value: Any) -> int:
    """A whole number that is a power of two."""
    number = integer_reader(1)(value)
    if number & (number - 1):
        raise UsageError(f"{value!r} is no power of two", next_step="write 16, 64, 256 or 512")
    return number


def read_boolean(value: Any) -> bool:
    """Yes or no, as text or as itself."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _YES_NO:
        return _YES_NO[value.strip().lower()]
    raise UsageError(f"{value!r} is neither yes nor no", next_step=f"write one of {', '.join(_YES_NO)}")


def read_verify(value: Any) -> bool | str:
    """Yes or no, or which planned calls are verified: `first`, `never`, or `every N`."""
    text = value.strip().lower() if isinstance(value, str) else ""
    if text in {"first", "never"} or _EVERY.fullmatch(text):
        return text
    try:
        return read_boolean(value)
    except UsageError as error:
        raise UsageError(
            f"{value!r} says neither whether nor when to verify",
            next_step="write first, never, every 100, yes or no",
        ) from error


def one_of_reader(*choices: str) -> Callable[[Any], str]:
    """Reads one of some words."""

    def read(value: Any) -> str:
        text = str(value).strip()
        if text not in choices:
            raise UsageError(f"{value!r} is not a choice", next_step=f"choose one of {', '.join(choices)}")
        return text

    return read


def read_texts(value: Any) -> tuple[str, ...]:
    """Several names, in a list or with commas between them."""
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    if isinstance(value, list | tuple):
        return tuple(read_text(part) for part in value)
    raise UsageError(f"{value!r} is no list of names", next_step="write names with commas between them")


def parse_dims(texts: Sequence[str]) -> dict[str, dict[int, tuple[int, int | None]]]:
    """Dims that may vary, by argument or path: `batch:0=2..64,1=16..` is dims 0 and 1 of `batch`, the second without end.

    A text without a path goes on with that of the text before it.
    """
    found: dict[str, dict[int, tuple[int, int | None]]] = {}
    path = ""
    for part in ",".join(texts).split(","):
        named, colon, dim = part.rpartition(":")
        path = named.strip() if colon else path
        match = _DIM.fullmatch(dim.strip())
        if match is None or not path:
            raise UsageError(
                f"{part!r} names no dim that varies",
                next_step="write it like batch:0=2..64,1=16..4096: dim=smallest..largest",
            )
        axis, low, high = match.groups()
        found.setdefault(path, {})[int(axis)] = (int(low), int(high) if high else None)
    return found


def parse_shapes(texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Shapes: `8x512` is size 8 of the first dim and 512 of the second."""
    for text in texts:
        if _SHAPE.fullmatch(text.strip()) is None:
            raise UsageError(f"{text!r} is no shape", next_step="write a size for each dim, such as 8x512")
    return tuple(tuple(map(int, text.split("x"))) for text in texts)


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
    "peak": (None, _read_peak, "SIZE"),
    "latency": (None, _read_latency, "TIME"),
    "host": (None, _read_host, "SIZE"),
    "state_between_steps": (False, read_boolean, ""),
    "host_rate": ("200MB", _read_size, "SIZE"),
    "host_folder": (None, read_text, "FOLDER"),
    "device": (None, read_text, "NAME"),
    "time_limit": (None, _read_duration, "TIME"),
    "work_limit": (None, integer_reader(1), "N"),
    "workers": (None, integer_reader(1), "N"),
    "seed": (0, integer_reader(0, HIGHEST_SEED), "N"),
    "strategy": (DEFAULT_STRATEGY, read_text, "NAME"),
    "also": ((), read_texts, "STRATEGY"),
    "method": ((), read_texts, "NAME"),
    "capacity": (None, _read_size, "SIZE"),
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
    "lowering": (ATEN, one_of_reader(ATEN, INDUCTOR), "HOW"),
    "trials": (None, integer_reader(2, MOST_TRIALS), "N"),
    "checkpoints": ("keep", one_of_reader("keep", "undo"), "HOW"),
    "in_place": (True, read_boolean, ""),
    "rewrite": ((), read_texts, "RULE"),
    "refresh": (False, read_boolean, ""),
    "dynamic": ((), read_texts, "DIMS"),
    "at": ((), read_texts, "SHAPE"),
    "fit": (None, _read_fit, "SIZE"),
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
    "atomic": "Keep all updates after the last operation that can fail.",
    "allow_nondeterministic": "Recompute operations too whose kernels give other bits on every run.",
    "numerics": "Numbers of the plan: bitwise (default) as eager's, or close: sums may be taken in another order.",
    "lowering": "Kernels of the plan: aten (default), those of eager, or inductor: groups of operations run as one, compiled here.",
    "trials": "Plan N times around the limit, run the plans, and take the best that measured within it.",
    "checkpoints": "Functions under torch.utils.checkpoint: keep (default) the state that eager's two runs leave, or undo: run once.",
    "in_place": "Put results on top of operands that nobody needs any more, where that lowers the peak; bits are kept.",
    "rewrite": "Rewrite the graph by this rule wherever it applies, and plan the result; repeatable.",
    "refresh": "Time operations again that were timed before, on a machine that was busier than now, say.",
    "dynamic": "Dims of an argument that may vary, such as batch:0=2..64,1=16..4096 (dim=smallest..largest); repeatable.",
    "at": "Compare at this shape of --dynamic, such as 8x512: a size for each dim, in order; repeatable.",
    "fit": "Whether it fits --device, how large a batch may be, and what makes it fit; or, of a size such as 24GiB, the largest shapes within --dynamic.",
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
