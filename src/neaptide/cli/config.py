"""Settings from three places: arguments win over `NEAPTIDE_*`, which win over `neaptide.toml` or `pyproject.toml`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from neaptide.errors import UnreadableFile, UsageError
from neaptide.reading import is_file, read_text

PREFIX: Final = "NEAPTIDE_"
OWN_FILE: Final = "neaptide.toml"
SHARED_FILE: Final = "pyproject.toml"
# Read by other rooms; no setting of a command.
_OTHER_VARIABLES: Final = frozenset({"NEAPTIDE_CACHE_DIR"})
_YES_NO: Final = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}
_HIGHEST_SEED: Final = 2**63 - 1  # that torch takes
DEFAULT_TIME_LIMIT_S: Final = 20.0
CURVE_TIME_LIMIT_S: Final = 0.03
"""For each operation: curves take about a third of it where nothing else runs."""
DEFAULT_TIME_LIMIT: Final = f"{DEFAULT_TIME_LIMIT_S:g}s"
CURVE_TIME_LIMIT: Final = f"{CURVE_TIME_LIMIT_S * 1e3:g}ms an operation, at least {DEFAULT_TIME_LIMIT}"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a command can be told, whichever way it is told.

    Attributes:
        peak: highest bytes, a share of the baseline or a reduction of it.
        latency: longest step time, or an increase over the baseline.
        device: a preset's name; None for this machine.
        time_limit: of planning, a duration; None for the default of the command, or for none with a work
            limit.
        work_limit: of planning, in changes tried; the answer is then the same on every machine.
        seed: of all random choices.
        strategy: of the planner.
        also: further strategies to compare with.
        method: methods of ordering or layout to run; none means as many as it takes.
        capacity: bytes that an arena must not exceed; None for the smallest.
        alignment: least alignment of every buffer; None for 64 in programs, and for what a CSV says.
        workspace: place scratch bytes of operations too.
        points: budgets of a curve.
        repeats: timed steps of each program.
        steps: steps of a run.
        verify: compare the numbers with eager; None for what the command does by itself.
        eager: measure eager too.
        atomic: keep all updates behind the last operation that can fail.
        allow_nondeterministic: recompute operations too that give other bits on every run.
        refresh: time operations again that were timed before.
        arena: run inside one block of memory.
        arena_copies: which results are copied into it: cheap, all or none.
    """

    peak: str | None = None
    latency: str | None = None
    device: str | None = None
    time_limit: str | None = None
    work_limit: int | None = None
    seed: int = 0
    strategy: str = "default"
    also: tuple[str, ...] = ()
    method: tuple[str, ...] = ()
    capacity: str | None = None
    alignment: int | None = None
    workspace: bool = False
    points: int = 20
    repeats: int = 5
    steps: int = 3
    verify: bool | None = None
    eager: bool = True
    atomic: bool = False
    allow_nondeterministic: bool = False
    refresh: bool = False
    arena: bool = False
    arena_copies: str = "cheap"

    @property
    def time_limit_s(self) -> float | None:
        """Seconds that planning may take; None without a limit."""
        from neaptide.units import parse_duration

        if self.time_limit is not None:
            return parse_duration(self.time_limit)
        return DEFAULT_TIME_LIMIT_S if self.work_limit is None else None

    def curve_time_limit_s(self, operations: int) -> float | None:
        """Seconds that the plans of a whole curve may take; by default more for a larger program."""
        is_default = self.time_limit is None and self.work_limit is None
        return max(DEFAULT_TIME_LIMIT_S, CURVE_TIME_LIMIT_S * operations) if is_default else self.time_limit_s


NAMES: Final = tuple(field.name for field in fields(Settings))


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings, and for each of them the place it came from."""

    settings: Settings
    sources: Mapping[str, str]

    def as_json(
        self, names: Iterable[str] = NAMES, *, time_limit: str = DEFAULT_TIME_LIMIT
    ) -> dict[str, Any]:
        """Value in force and source of each of these settings; `time_limit` is the command's default, in words."""
        values = asdict(self.settings)
        if self.settings.time_limit is None and self.settings.work_limit is None:
            values["time_limit"] = time_limit
        return {name: {"value": values[name], "source": self.sources[name]} for name in names}


def resolve(arguments: Mapping[str, Any], *, environment: Mapping[str, str], directory: Path) -> Resolved:
    """The settings in force.

    Args:
        arguments: those given on the command line, by setting name; None is not given.
        environment: of the process.
        directory: where the search for a configuration file starts; it goes on in the folders above.

    Raises:
        UsageError: for a value that cannot be read or a name that is unknown; says where it stands.
    """
    values: dict[str, Any] = {}
    sources = dict.fromkeys(NAMES, "default")
    path, table = _find_file(directory)
    for key, value in table.items():
        name = _known(key.replace("-", "_"), f"{path}")
        values[name] = _read(name, value, f"{key} in {path}")
        sources[name] = str(path)
    for name in NAMES:
        variable = PREFIX + name.upper()
        if variable in environment:
            values[name] = _read(name, environment[variable], variable)
            sources[name] = f"environment variable {variable}"
        if arguments.get(name) is not None:
            flag = "--" + name.replace("_", "-")
            values[name] = _read(name, arguments[name], flag)
            sources[name] = f"argument {flag}"
    return Resolved(Settings(**values), sources)


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """`NEAPTIDE_*` variables that nothing reads, most likely slips of the keyboard."""
    known = {PREFIX + name.upper() for name in NAMES} | _OTHER_VARIABLES
    return sorted(name for name in environment if name.startswith(PREFIX) and name not in known)


def _find_file(directory: Path) -> tuple[Path | None, Mapping[str, Any]]:
    """The nearest configuration file at or above a folder, and its table."""
    for folder in (directory, *directory.parents):
        own = folder / OWN_FILE
        if is_file(own):
            return own, _load(own)
        shared = folder / SHARED_FILE
        if is_file(shared):
            tools = _load(shared).get("tool")
            table = tools.get("neaptide") if isinstance(tools, Mapping) else None
            if isinstance(table, Mapping):
                return shared, table
            if table is not None:
                raise UsageError(
                    "tool.neaptide is no table",
                    where=str(shared),
                    next_step="write [tool.neaptide] on a line of its own, and the settings below it",
                )
    return None, {}


def _load(path: Path) -> dict[str, Any]:
    import tomllib

    next_step = "mend the file, or run from another folder"
    try:
        return tomllib.loads(read_text(path))
    except UnreadableFile as error:
        why = error.why
    except RecursionError:
        why = "it is nested too deeply"
    except ValueError as error:  # a mistake in the form, or a number with more digits than Python reads
        why = str(error)
    raise UsageError("the configuration file cannot be read", where=str(path), why=why, next_step=next_step)


def _known(name: str, where: str) -> str:
    if name in NAMES:
        return name
    close = difflib.get_close_matches(name, NAMES, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise UsageError(
        f"there is no setting {name!r}", where=where, next_step=f"{hint}the settings are {', '.join(NAMES)}"
    )


def _read(name: str, value: Any, where: str) -> Any:
    """A value in the type of its setting; errors name the place it stands in."""
    try:
        return _READERS[name](value)
    except UsageError as error:
        raise type(error)(error.what, where=where, why=error.why, next_step=error.next_step) from error


def _text(value: Any) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise UsageError(f"{value!r} is no name", next_step="write some text")


def _peak(value: Any) -> str:
    from neaptide.planner.budget import Budget

    Budget(value)
    return str(value).strip()


def _size(value: Any) -> str:
    from neaptide.units import parse_size

    parse_size(value)
    return str(value).strip()


def _latency(value: Any) -> str:
    from neaptide.planner.budget import Budget

    text = _with_unit(value)
    Budget(None, latency=text)
    return text


def _duration(value: Any) -> str:
    from neaptide.units import parse_duration

    text = _with_unit(value)
    parse_duration(text)
    return text


def _with_unit(value: Any) -> str:
    """A number in a configuration file is seconds; text has to say so."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value}s" if is_number else str(value).strip()


def _integer(lowest: int, highest: int | None = None) -> Callable[[Any], int]:
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


def _power_of_two(value: Any) -> int:
    number = _integer(1)(value)
    if number & (number - 1):
        raise UsageError(f"{value!r} is no power of two", next_step="write 16, 64, 256 or 512")
    return number


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _YES_NO:
        return _YES_NO[value.strip().lower()]
    raise UsageError(f"{value!r} is neither yes nor no", next_step=f"write one of {', '.join(_YES_NO)}")


def _one_of(*choices: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        text = str(value).strip()
        if text not in choices:
            raise UsageError(f"{value!r} is not a choice", next_step=f"choose one of {', '.join(choices)}")
        return text

    return read


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    if isinstance(value, list | tuple):
        return tuple(_text(part) for part in value)
    raise UsageError(f"{value!r} is no list of names", next_step="write names with commas between them")


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "peak": _peak,
    "latency": _latency,
    "device": _text,
    "time_limit": _duration,
    "work_limit": _integer(1),
    "seed": _integer(0, _HIGHEST_SEED),
    "strategy": _text,
    "also": _texts,
    "method": _texts,
    "capacity": _size,
    "alignment": _power_of_two,
    "workspace": _boolean,
    "points": _integer(2),
    "repeats": _integer(1),
    "steps": _integer(1),
    "verify": _boolean,
    "eager": _boolean,
    "atomic": _boolean,
    "allow_nondeterministic": _boolean,
    "refresh": _boolean,
    "arena": _boolean,
    "arena_copies": _one_of("cheap", "all", "none"),
}
