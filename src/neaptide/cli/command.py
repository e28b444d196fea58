"""How every command is made: its options, its settings from three places, and where its result goes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from neaptide.cli import config
from neaptide.cli.console import Console
from neaptide.cli.file_kinds import check_file
from neaptide.cli.options import check_options
from neaptide.errors import UsageError
from neaptide.settings import DEFAULT_TIME_LIMIT, DEFAULTS, TABLE, SettingInfo, Settings


@dataclass(frozen=True, slots=True)
class Request:
    """What a command was asked.

    Attributes:
        console: where it prints.
        settings: from arguments, environment and file.
        target: as typed; empty for commands without one.
        output: of `-o`.
        plan: of `--plan`.
        picture: of `--picture`.
        text: of `--text`: draw with characters.
        ladder: of `--ladder`.
        memories: of `--memories`.
    """

    console: Console
    settings: Settings
    target: str = ""
    output: Path | None = None
    plan: Path | None = None
    picture: Path | None = None
    text: bool = False
    ladder: bool = False
    memories: Path | None = None


Action: TypeAlias = Callable[[Request], int]


_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_FILE_THAT_IS_THERE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)

PLAN: Final = click.Option(
    ["--plan"], type=_FILE_THAT_IS_THERE, metavar="FILE", help="A plan saved by `plan -o`."
)
PICTURE: Final = click.Option(
    ["--picture"], type=_FILE, metavar="FILE", help="Draw it into a .svg or a .png."
)
TEXT: Final = click.Option(["--text"], is_flag=True, help="Draw it with characters.")
LADDER: Final = click.Option(
    ["--ladder"],
    is_flag=True,
    help="Compare four ways to give a program its memory, from no reuse to planned addresses.",
)
MEMORIES: Final = click.Option(
    ["--memories"],
    type=_FILE_THAT_IS_THERE,
    metavar="FILE",
    help="Place buffers in several memories with capacities, as JSON.",
)


def output(help_text: str) -> click.Option:
    """`-o`, where a command writes its result."""
    return click.Option(["-o", "--output"], type=_FILE, metavar="FILE", help=help_text)


def make_command(
    name: str,
    action: Action,
    help_text: str,
    *,
    target: str | None = "TARGET",
    settings: tuple[str, ...] = (),
    further: tuple[click.Parameter, ...] = (),
    needs_plan: bool = False,
    time_limit: str = DEFAULT_TIME_LIMIT,
) -> click.Command:
    """A command of the command line.

    Args:
        name: as it is typed.
        action: does the work and returns the exit code.
        help_text: its first sentence stands in the list of commands.
        target: what its argument is called; None for none.
        settings: names of the settings that it reads.
        further: options that are no settings.
        needs_plan: whether `--plan FILE` has to be given.
        time_limit: the default of `--time-limit`, in words.
    """
    params: list[click.Parameter] = []
    if target is not None:
        # Asked for below, not here: --print-config does without.
        params.append(click.Argument(["target"], required=False, metavar=target))
    required = ("target", "plan") if needs_plan else ("target",)
    params += [
        _time_limit_option(time_limit) if setting == "time_limit" else _option(TABLE[setting])
        for setting in settings
    ]
    params += further
    params += [
        click.Option(["--json", "as_json"], is_flag=True, help="Print the result as one JSON object."),
        *how_much_options(),
    ]
    if settings:
        params.append(
            click.Option(
                ["--print-config"], is_flag=True, help="Print each setting and where it comes from, and stop."
            )
        )

    @click.pass_context
    def run(context: click.Context, /, **given: Any) -> int:
        return _run(context, action, given, settings, required, time_limit)

    return click.Command(name, params=params, callback=run, help=help_text, no_args_is_help=False)


def how_much_options() -> list[click.Parameter]:
    """`-q` and `-v`, which stand before the command or behind it."""
    return [
        click.Option(["-q", "--quiet"], is_flag=True, help="Print no progress."),
        click.Option(["-v", "--verbose"], count=True, help="Print more; -vv with tracebacks of every error."),
    ]


def _run(
    context: click.Context,
    action: Action,
    given: dict[str, Any],
    settings: tuple[str, ...],
    required: tuple[str, ...],
    time_limit: str,
) -> int:
    console: Console = context.obj
    console.as_json = given["as_json"]
    console.configure(quiet=given["quiet"], verbosity=given["verbose"])
    resolved = config.resolve(
        {name: given[name] if given[name] != () else None for name in settings},
        environment=os.environ,
        directory=_current_folder(),
    )
    for variable in config.unknown_variables(os.environ):
        console.note(f"nothing reads the environment variable {variable}")
    if given.get("print_config"):
        return _print_config(console, resolved.as_json(settings, time_limit=time_limit))
    _require(context, given, *required)
    if given.get("target"):
        check_file(context.command.name or "", given["target"])
    read = replace(DEFAULTS, **{name: getattr(resolved.settings, name) for name in settings})
    check_options(context.command.name or "", read)
    output: Path | None = given.get("output")
    picture: Path | None = given.get("picture")
    for path in (output, picture):
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(
                "the result cannot be written",
                where=str(path),
                why=f"there is no folder {path.absolute().parent}",
                next_step="make the folder first, or write elsewhere",
            )
        if path is not None:
            _check_writable(path)
    return action(
        Request(
            console,
            read,
            given.get("target") or "",
            output,
            given.get("plan"),
            picture,
            given.get("text", False),
            given.get("ladder", False),
            given.get("memories"),
        )
    )


def _check_writable(path: Path) -> None:
    """Make sure, before anything long begins, that a result can be written."""
    try:
        if path.is_dir():  # an empty name is the current folder
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not path.exists():
            # Tried, not asked: a name may be too long, and a disk read-only, where the permissions say yes.
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            path.unlink()
        elif not os.access(path, os.W_OK) or (
            path.is_file() and not os.access(path.resolve().parent, os.W_OK)
        ):
            # A file is written beside itself first, so that a failure leaves it as it was.
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UsageError(
            "the result cannot be written", where=str(path), why=error.strerror, next_step="write elsewhere"
        ) from error


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise UsageError(
            "the current folder is gone",
            where=os.environ.get("PWD", "."),
            next_step="change to a folder that is there",
        ) from error


def _require(context: click.Context, given: Mapping[str, Any], *names: str) -> None:
    for param in context.command.params:
        if param.name in names and given[param.name] is None:
            raise click.MissingParameter(ctx=context, param=param)


def _option(made: SettingInfo) -> click.Option:
    flag = "--" + made.name.replace("_", "-")
    if made.is_yes_or_no:
        return click.Option([f"{flag}/--no-{flag[2:]}"], default=None, help=made.help)
    completion = _complete_device if made.name == "device" else None
    return click.Option(
        [flag], metavar=made.metavar, multiple=made.is_many, shell_complete=completion, help=made.help
    )


def _time_limit_option(default: str) -> click.Option:
    return click.Option(
        ["--time-limit"], metavar="TIME", help=f"{TABLE['time_limit'].help[:-1]}; {default} by default."
    )


def _print_config(console: Console, content: Mapping[str, Any]) -> int:
    from neaptide.report.document import Table, document

    if console.as_json:
        console.json(content)
        return 0
    rows = tuple(
        (name, "-" if entry["value"] in (None, ()) else _shown(entry["value"]), entry["source"])
        for name, entry in content.items()
    )
    console.document(document(Table(("setting", "value", "from"), rows, left=frozenset({1, 2}))))
    return 0


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _complete_device(context: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    del context, param
    from neaptide.cost.presets import PRESETS

    return [name for name in PRESETS if name.startswith(incomplete)]
