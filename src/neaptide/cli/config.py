"""Settings from three places: arguments win over `NEAPTIDE_*`, which win over `neaptide.toml` or `pyproject.toml`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from neaptide.errors import UnreadableFile, UsageError
from neaptide.files.reading import is_file, read_text
from neaptide.settings import DEFAULT_TIME_LIMIT, TABLE, Settings, read_setting

PREFIX: Final = "NEAPTIDE_"
OWN_FILE: Final = "neaptide.toml"
SHARED_FILE: Final = "pyproject.toml"
# Read by other rooms; no setting of a command.
_OTHER_VARIABLES: Final = frozenset({"NEAPTIDE_CACHE_DIR"})

NAMES: Final = tuple(TABLE)


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings, and for each of them the place it came from."""

    settings: Settings
    sources: Mapping[str, str]

    def only(self, names: Iterable[str]) -> Settings:
        """The settings that a command reads; the others have their defaults."""
        return Settings(**{name: getattr(self.settings, name) for name in names})

    def as_json(
        self, names: Iterable[str] = NAMES, *, time_limit: str = DEFAULT_TIME_LIMIT
    ) -> dict[str, Any]:
        """Value in force and source of each of these settings; `time_limit` is the command's default, in words."""
        values = dict(vars(self.settings))
        if self.settings.time_limit is None and self.settings.work_limit is None:
            values["time_limit"] = time_limit
        return {name: {"value": values[name], "source": self.sources[name]} for name in names}


def resolve(arguments: Mapping[str, Any], *, environment: Mapping[str, str], directory: Path) -> Resolved:
    """The settings in force; an argument of None is not given. A file is searched for in a folder and those above."""
    values: dict[str, Any] = {}
    sources = dict.fromkeys(NAMES, "default")
    path, table = _find_file(directory)
    for key, value in table.items():
        name = _known(key.replace("-", "_"), f"{path}")
        values[name] = read_setting(name, value, f"{key} in {path}")
        sources[name] = str(path)
    for name in NAMES:
        variable = PREFIX + name.upper()
        if variable in environment:
            values[name] = read_setting(name, environment[variable], variable)
            sources[name] = f"environment variable {variable}"
        if arguments.get(name) is not None:
            flag = "--" + name.replace("_", "-")
            values[name] = read_setting(name, arguments[name], flag)
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
