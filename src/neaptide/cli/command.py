"""How every command is made: its options, its settings from three places, and where its result goes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from neaptide.cli import config
from neaptide.cli.console import Console
from neaptide.errors import UsageError


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
    settings: config.Settings
    target: str = ""
    output: Path | None = None
    plan: Path | None = None
    picture: Path | None = None
    text: bool = False
    ladder: bool = False
    memories: Path | None = None


Action: TypeAlias = Callable[[Request], int]

_SETTINGS: Final[Mapping[str, Callable[[], click.Option]]] = {
    "peak": lambda: click.Option(
        ["--peak"], metavar="SIZE", help="Highest bytes: 20GiB, 60% of the baseline, -30%, or min."
    ),
    "latency": lambda: click.Option(
        ["--latency"], metavar="TIME", help="Longest step: 250ms, or +10% over the baseline."
    ),
    "device": lambda: click.Option(
        ["--device"],
        metavar="NAME",
        shell_complete=_complete_device,
        help="Plan for this device, see `neaptide devices`; by default this machine.",
    ),
    "work_limit": lambda: click.Option(
        ["--work-limit"],
        metavar="N",
        help="Stop planning after N changes tried, whatever time it takes: the same plan on every machine.",
    ),
    "seed": lambda: click.Option(["--seed"], metavar="N", help="Seed of all random numbers; 0 by default."),
    "strategy": lambda: click.Option(["--strategy"], metavar="NAME", help="Strategy of the planner."),
    "also": lambda: click.Option(
        ["--also"], metavar="STRATEGY", multiple=True, help="Compare with this strategy as well; repeatable."
    ),
    "method": lambda: click.Option(
        ["--method"],
        metavar="NAME",
        multiple=True,
        help="Method to run, or all; repeatable. By default as many as it takes to prove the result.",
    ),
    "capacity": lambda: click.Option(
        ["--capacity"], metavar="SIZE", help="Bytes that must be enough; by default as few as possible."
    ),
    "alignment": lambda: click.Option(
        ["--alignment"],
        metavar="BYTES",
        help="Least alignment of every buffer; 64 by default for a program, that of the file for a CSV.",
    ),
    "workspace": lambda: click.Option(
        ["--workspace/--no-workspace"],
        default=None,
        help="Place the scratch bytes of each operation too; by default its kernel allocates them.",
    ),
    "points": lambda: click.Option(
        ["--points"], metavar="N", help="Budgets from the peak down to the lowest one found; 20 by default."
    ),
    "repeats": lambda: click.Option(
        ["--repeats"], metavar="N", help="Timed steps of each program; 5 by default."
    ),
    "steps": lambda: click.Option(["--steps"], metavar="N", help="Steps to run; 3 by default."),
    "verify": lambda: click.Option(
        ["--verify/--no-verify"],
        default=None,
        help="Compare loss, gradients and parameters with eager; `compare` does it by default, `run` does not.",
    ),
    "eager": lambda: click.Option(["--eager/--no-eager"], default=None, help="Measure eager as well."),
    "atomic": lambda: click.Option(
        ["--atomic/--no-atomic"],
        default=None,
        help="Keep all updates behind the last operation that can fail.",
    ),
    "allow_nondeterministic": lambda: click.Option(
        ["--allow-nondeterministic/--no-allow-nondeterministic"],
        default=None,
        help="Recompute operations too whose kernels give other bits on every run.",
    ),
    "refresh": lambda: click.Option(
        ["--refresh/--no-refresh"],
        default=None,
        help="Time operations again that were timed before, on a machine that was busier than now, say.",
    ),
    "arena": lambda: click.Option(
        ["--arena/--no-arena"],
        default=None,
        help="Run inside one block of memory, results at planned addresses.",
    ),
    "arena_copies": lambda: click.Option(
        ["--arena-copies"],
        metavar="WHICH",
        help="Results copied into the arena where operations do not write there: cheap (default), all or none.",
    ),
}


def make_command(
    name: str,
    action: Action,
    help_text: str,
    *,
    target: str | None = "TARGET",
    settings: tuple[str, ...] = (),
    output: str | None = None,
    needs_plan: bool = False,
    takes_plan: bool = False,
    draws: bool = False,
    draws_text: bool = True,
    has_ladder: bool = False,
    takes_memories: bool = False,
    time_limit: str = config.DEFAULT_TIME_LIMIT,
) -> click.Command:
    """A command of the command line.

    Args:
        name: as it is typed.
        action: does the work and returns the exit code.
        help_text: its first sentence stands in the list of commands.
        target: what its argument is called; None for none.
        settings: names of the settings that it reads.
        output: help of `-o`; None for no such option.
        needs_plan: whether `--plan FILE` has to be given.
        takes_plan: whether it can be given.
        draws: whether there is `--picture FILE`.
        draws_text: whether there is `--text` beside it.
        has_ladder: whether there is `--ladder`.
        takes_memories: whether there is `--memories FILE`.
        time_limit: the default of `--time-limit`, in words.
    """
    params: list[click.Parameter] = []
    if target is not None:
        # Asked for below, not here: --print-config does without.
        params.append(click.Argument(["target"], required=False, metavar=target))
    required = ("target", "plan") if needs_plan else ("target",)
    params += [
        _time_limit_option(time_limit) if setting == "time_limit" else _SETTINGS[setting]()
        for setting in settings
    ]
    if needs_plan or takes_plan:
        params.append(
            click.Option(
                ["--plan"], type=_FILE_THAT_IS_THERE, metavar="FILE", help="A plan saved by `plan -o`."
            )
        )
    if draws:
        params.append(
            click.Option(["--picture"], type=_FILE, metavar="FILE", help="Draw it into a .svg or a .png.")
        )
    if draws and draws_text:
        params.append(click.Option(["--text"], is_flag=True, help="Draw it with characters."))
    if has_ladder:
        params.append(
            click.Option(
                ["--ladder"],
                is_flag=True,
                help="Compare four ways to give a program its memory, from no reuse to planned addresses.",
            )
        )
    if takes_memories:
        params.append(
            click.Option(
                ["--memories"],
                type=_FILE_THAT_IS_THERE,
                metavar="FILE",
                help="Place buffers in several memories with capacities, as JSON.",
            )
        )
    if output is not None:
        params.append(click.Option(["-o", "--output"], type=_FILE, metavar="FILE", help=output))
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


_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_FILE_THAT_IS_THERE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


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
            resolved.settings,
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
        elif not os.access(path, os.W_OK):
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


def _time_limit_option(default: str) -> click.Option:
    return click.Option(
        ["--time-limit"], metavar="TIME", help=f"Stop planning after this long; {default} by default."
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
