"""How every command is made: its options, its settings from three places, what they ask for, and where its result goes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import click

from neaptide.ask import THE_DEVICE, THIS_MACHINE
from neaptide.budget import Budget, check_unit
from neaptide.cli import config
from neaptide.cli.files import check_file, check_folder, check_writable, is_model, write_result
from neaptide.cli.process.console import Console
from neaptide.errors import UsageError
from neaptide.options import asked_for, refuse_exclusions
from neaptide.outcome import Limits
from neaptide.report.document import Document, Table, document
from neaptide.settings import DEFAULT_TIME_LIMIT, TABLE, SettingInfo, Settings, parse_dims
from neaptide.units import parse_size

if TYPE_CHECKING:
    from neaptide.report.charts.chart import Chart
    from neaptide.runtime.arena.plan import ArenaOptions, Copies


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What a command on a model file was told beside its settings."""

    dim: tuple[str, ...] = ()  # sizes of dims, as `NAME=SIZE`
    runtime: str | None = None  # that the planned file is for
    memory: str | None = None
    passes: str | None = None
    fuse: Literal["ort"] | None = None
    loss: str | None = None
    wrt: str | None = None
    sgd: float | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What a command was asked, and where its result goes."""

    console: Console
    settings: Settings
    target: str = ""  # as typed; empty for commands without one
    output: Path | None = None
    plan: Path | None = None
    picture: Path | None = None
    text: bool = False  # draw with characters
    ladder: bool = False
    memories: Path | None = None
    model: ModelOptions = ModelOptions()

    @property
    def limits(self) -> Limits:
        """Of one search, as the settings say."""
        settings = self.settings
        return Limits(time_s=settings.time_limit_s, work=settings.work_limit, seed=settings.seed)

    def deliver(self, result: Any, document: Callable[[], Document], *, noun: str, text: str = "") -> None:
        """Write a result where `-o` says, and print it: as JSON, or as a document.

        The result is a report, or its JSON as a mapping or as text. The file has `text`, by default the JSON; `noun` says
        what is saved.
        """
        from neaptide.report.model import to_json

        if isinstance(result, str):
            shown = result
        else:
            shown = json.dumps(result, indent=2) if isinstance(result, dict) else to_json(result)
        if self.output is not None:
            write_result(self.output, text or f"{shown}\n")
            self.console.progress(f"{noun} saved in {self.output}")
        if self.console.as_json:
            self.console.result(shown)
        else:
            self.console.document(document())

    def without_files(self) -> Request:
        """The same, with nothing to write or draw."""
        return replace(self, output=None, picture=None)

    def draw(self, chart: Callable[[], Chart]) -> None:
        """Draw a chart where `--picture` says."""
        from neaptide.report.charts.file import save_chart

        if self.picture is not None:
            save_chart(self.picture, chart())
            self.console.progress(f"picture saved in {self.picture}")

    def refuse_beside(self, option: str, *names: str) -> None:
        """Refuse options that have no meaning beside another one."""
        own = {"--picture": self.picture, "--text": self.text, "--ladder": self.ladder, "-o": self.output}
        for name in names:
            setting = name.removeprefix("--").replace("-", "_")
            is_given = (
                own[name]
                if name in own
                else getattr(self.settings, setting) not in (TABLE[setting].default, ())
            )
            if is_given:
                raise UsageError(f"{name} has no meaning with {option}", next_step="leave one of them out")


_OF_REQUEST: Final = ("target", "output", "plan", "picture", "text", "ladder", "memories")
_OF_MODELS: Final = {
    "runtime": "--target",
    "memory": "--memory",
    "passes": "--passes",
    "fuse": "--fuse",
    "dim": "--dim",
}
Action: TypeAlias = Callable[[Request], int]

_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_FILE_OR_FOLDER: Final = click.Path(path_type=Path)
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
DIM: Final = click.Option(
    ["--dim"],
    multiple=True,
    metavar="NAME=SIZE",
    help="Size of a named dim of a model file, such as batch=1; repeatable.",
)
RUNTIME: Final = click.Option(
    ["--target", "runtime"],
    metavar="NAME",
    help="What runs the planned model file: ort (ONNX Runtime, whose scratch is then counted), c (one C file), tflm (TensorFlow Lite Micro) or tflm-reference (with its reference kernels, which compute in place).",
)
PASSES: Final = click.Option(
    ["--passes"],
    metavar="NAMES",
    help="Passes over a model file: learned (default), none, or names in their order, such as conv_batch_norm,windows_4.",
)
MEMORY: Final = click.Option(
    ["--memory"],
    metavar="SIZE",
    help="Memory of the device that a model file must fit; of several, NAME=SIZE,NAME=SIZE with the fastest first.",
)

FUSE: Final = click.Option(
    ["--fuse"],
    type=click.Choice(["ort"]),
    help="Have ONNX Runtime fuse operators first, and plan what it makes; only it runs the result.",
)
GRADIENT: Final = (
    click.Option(["--loss"], metavar="NAME", help="The value to differentiate, with one element."),
    click.Option(
        ["--wrt"], metavar="NAMES", help="Initializers, inputs or values, with commas between them."
    ),
    click.Option(
        ["--sgd"],
        type=float,
        metavar="RATE",
        help="Write updated values NAME_new instead of gradients NAME_grad.",
    ),
)


def output(help_text: str, *, or_folder: bool = False) -> click.Option:
    """`-o`, where a command writes its result: a file, or a folder for files."""
    kind, name = (_FILE_OR_FOLDER, "PATH") if or_folder else (_FILE, "FILE")
    return click.Option(["-o", "--output"], type=kind, metavar=name, help=help_text)


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
    """A command of the command line, which does its work by an action that returns the exit code.

    The first sentence of its help stands in the list of commands. `settings` are the names of those that it reads, `further` are
    options that are none, and `time_limit` is the default of `--time-limit`, in words.
    """
    params: list[click.Parameter] = []
    if target is not None:
        # Asked for below, not here: --print-config does without.
        params.append(click.Argument(["target"], required=False, metavar=target))
    required = ("target", "plan") if needs_plan else ("target",)
    params += [_option(TABLE[setting], time_limit) for setting in settings]
    params += further
    params += [
        click.Option(["--json", "as_json"], is_flag=True, help="Print the result as one JSON object."),
        *how_much_options(),
    ]
    if settings:
        told = "Print each setting and where it comes from, and stop."
        params.append(click.Option(["--print-config"], is_flag=True, help=told))

    @click.pass_context
    def run(context: click.Context, /, **given: Any) -> int:
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
        return action(_request(context, given, required, resolved.only(settings)))

    return click.Command(name, params=params, callback=run, help=help_text, no_args_is_help=False)


def how_much_options() -> list[click.Parameter]:
    """`-q` and `-v`, which stand before the command or after it."""
    return [
        click.Option(["-q", "--quiet"], is_flag=True, help="Print no progress."),
        click.Option(["-v", "--verbose"], count=True, help="Print more; -vv with tracebacks of every error."),
    ]


def _request(
    context: click.Context, given: Mapping[str, Any], required: tuple[str, ...], settings: Settings
) -> Request:
    """What was asked, once it is known that it can be meant."""
    command = context.command.name or ""
    for param in context.command.params:
        if param.name in required and given[param.name] is None:
            raise click.MissingParameter(ctx=context, param=param)
    if given.get("target"):
        check_file(command, given["target"])
    check_options(command, settings)
    is_for_device = is_model(given.get("target") or "")
    for option, name in _OF_MODELS.items():
        if given.get(option) not in {None, ()} and not is_for_device:
            raise UsageError(f"{name} is for model files", next_step="leave it out, or name a model file")
    for path in (given.get("output"), given.get("picture")):
        if path is not None:
            (check_folder if is_for_device and command == "plan" and not path.suffix else check_writable)(
                path
            )
    of_model = [field.name for field in fields(ModelOptions)]
    others, model = (
        {name: given[name] for name in names if given.get(name) is not None}
        for names in (_OF_REQUEST, of_model)
    )
    return Request(context.obj, settings, **others, model=ModelOptions(**model))


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise UsageError(
            "the current folder is gone",
            where=os.environ.get("PWD", "."),
            next_step="change to a folder that is there",
        ) from error


def _option(made: SettingInfo, time_limit: str) -> click.Option:
    flag, told = "--" + made.name.replace("_", "-"), made.help
    if made.name == "time_limit":
        told = f"{told[:-1]}; {time_limit} by default."
    if made.is_yes_or_no:
        return click.Option([f"{flag}/--no-{flag[2:]}"], default=None, help=told)
    if made.name == "fit":
        return click.Option(
            [flag], metavar=f"[{made.metavar}]", is_flag=False, flag_value=THE_DEVICE, help=told
        )
    completion = _complete_device if made.name == "device" else None
    return click.Option(
        [flag], metavar=made.metavar, multiple=made.is_many, shell_complete=completion, help=told
    )


def _print_config(console: Console, content: Mapping[str, Any]) -> int:

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


_OF_TOYS: Final = frozenset({"recompute"})
"""Commands on instances whose bytes may be any numbers."""
_DIM: Final = "name a dim, such as --dynamic batch:0=2..64"


def check_options(command: str, settings: Settings) -> None:
    """Refuse options that exclude each other, that need another one, or that cannot be meant. Torch is not loaded for it."""
    if command not in _OF_TOYS:
        check_unit(settings.peak)
    if settings.at and not settings.dynamic:
        raise UsageError("--at names shapes, and no dim varies", next_step=_DIM)
    if settings.fit == THE_DEVICE and settings.device in (None, THIS_MACHINE):
        raise UsageError(
            "--fit asks about a device, and none is named", next_step="add --device rtx4090, say"
        )
    if settings.fit not in (None, THE_DEVICE) and not settings.dynamic:
        raise UsageError("--fit asks for shapes, and no dim varies", next_step=_DIM)
    further = {
        "budget": budget_of(settings),
        "rewrites": settings.rewrite,
        "saved": command == "plan",
        "dynamic": parse_dims(settings.dynamic) if settings.dynamic else None,
    }
    refuse_exclusions(asked_for({**vars(settings), **further}), task=command, is_typed=True)


def budget_of(settings: Settings) -> Budget:
    """The limits that are asked for."""
    return Budget(
        peak=settings.peak,
        latency=settings.latency,
        host=settings.host,
        state_between_steps=settings.state_between_steps,
    )


def options_of(settings: Settings, kind: type[Any]) -> dict[str, Any]:
    """Options of a function, those of its typed dict, but for what only a command has."""
    from neaptide.copy_engines.copy_engine import SlowMemory

    folder = None if settings.host_folder is None else Path(settings.host_folder)
    known = {
        **vars(settings),
        "time_limit_s": settings.time_limit_s,
        "rewrites": settings.rewrite,
        "device": device_of(settings),
        "dynamic": parse_dims(settings.dynamic) if settings.dynamic else None,
        "arena": _arena(settings),
        "slow": SlowMemory(bytes_per_s=parse_size(settings.host_rate), folder=folder),
    }
    return {name: content for name, content in known.items() if name in kind.__optional_keys__}


def device_of(settings: Settings) -> str | None:
    """The preset that is named, None for this machine; an unknown one is refused before anything is built."""
    if settings.device in (None, THIS_MACHINE):
        return None
    from neaptide.cost.presets import get_device

    return get_device(settings.device).name


def _arena(settings: Settings) -> bool | ArenaOptions:
    if not settings.arena:
        return False
    from neaptide.runtime.arena.plan import ArenaOptions

    return ArenaOptions(copies=cast("Copies", settings.arena_copies))
