"""`neaptide`: the group of commands, and how an ending becomes an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from neaptide import __version__
from neaptide.cli import commands, layout, machine, ordering, recompute
from neaptide.cli.command import (
    DIM,
    FUSE,
    GRADIENT,
    LADDER,
    MEMORIES,
    MEMORY,
    PASSES,
    PICTURE,
    PLAN,
    RUNTIME,
    TEXT,
    how_much_options,
    make_command,
    output,
)
from neaptide.cli.model_files import gradient
from neaptide.cli.process import exit_codes
from neaptide.cli.process.console import Console
from neaptide.cli.process.interrupts import Interrupts, handled, watched
from neaptide.cli.process.streams import stand_in_for_closed, undisturbed_stdout
from neaptide.errors import NeaptideError
from neaptide.settings import CURVE_TIME_LIMIT

_HELP = """Lower the high-water mark: plan a training step so that its peak memory fits a budget.

TARGET is file.py:factory, a function without arguments that returns (step, batch), or zoo:NAME@SIZE such as
zoo:gpt2@small.

\b
  neaptide profile train.py:factory                will it fit, and what is in the way
  neaptide compare train.py:factory --peak 60%     eager, baseline and plan, predicted and measured
  neaptide plan train.py:factory --peak 20GiB -o plan.json
  neaptide run train.py:factory --plan plan.json --verify
"""

_EPILOG = f"""\b
Exit codes:
{exit_codes.table()}

Results go to stdout, progress and errors to stderr. Every option can be set as NEAPTIDE_<OPTION>, in
neaptide.toml or in [tool.neaptide] of pyproject.toml; arguments win, --print-config shows what is in force.

\b
Completion:
  bash  eval "$(_NEAPTIDE_COMPLETE=bash_source neaptide)"
  zsh   eval "$(_NEAPTIDE_COMPLETE=zsh_source neaptide)"
  fish  _NEAPTIDE_COMPLETE=fish_source neaptide | source
"""

_PLANNING = (
    *("peak", "latency", "host", "state_between_steps", "host_rate", "host_folder", "device"),
    *("time_limit", "work_limit", "workers", "seed", "strategy", "allow_nondeterministic", "numerics"),
    "lowering",
    *("checkpoints", "in_place", "rewrite", "trials", "dynamic"),
)


@click.pass_obj
def _take_options(console: Console, quiet: bool, verbose: int) -> None:
    console.configure(quiet=quiet, verbosity=verbose)


cli = click.Group(
    "neaptide",
    params=how_much_options(),
    callback=_take_options,
    help=_HELP,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    commands=[
        make_command(
            "profile",
            commands.profile,
            "Predict peak memory and step time without running the step.\n\n"
            "With --device, says whether the step fits there; a zoo model is then built without weights. "
            "With --dynamic, --picture draws the peak over the range of shapes.",
            settings=("device", "seed", "refresh", "dynamic", "fit"),
            further=(PICTURE, DIM, output("Write the report as JSON.")),
        ),
        make_command(
            "plan",
            commands.plan,
            "Plan a step for a budget, and save the plan.\n\n"
            "With --dynamic the plan is for all shapes in the ranges, and --picture draws its peak over them. "
            "Ctrl-C stops planning and keeps the best plan so far; a second Ctrl-C ends at once.",
            settings=(*_PLANNING, "atomic"),
            further=(
                PICTURE,
                RUNTIME,
                MEMORY,
                PASSES,
                FUSE,
                DIM,
                output(
                    "Write the plan; also when the budget is not reached. Of a model file, a folder for the model and a "
                    "header.",
                    or_folder=True,
                ),
            ),
        ),
        make_command(
            "grad",
            gradient.grad,
            "Extend a model of ONNX by the nodes that compute its gradients.\n\n"
            "MODEL is a .onnx file; the result runs in any runtime of ONNX.",
            target="MODEL",
            further=(*GRADIENT, output("Write the extended model.")),
        ),
        make_command(
            "run",
            commands.run,
            "Run a saved plan on a fresh program, and measure it.",
            settings=(
                *("steps", "verify", "seed", "arena", "arena_copies", "allow_nondeterministic"),
                *("host_rate", "host_folder"),
            ),
            needs_plan=True,
            further=(PLAN, output("Write the report as JSON.")),
        ),
        make_command(
            "compare",
            commands.compare,
            "Run eager, baseline and plan side by side.\n\nOne table: predicted and measured peaks, step times, differences in the numbers, bounds. "
            "With --dynamic, at a few shapes of the range: the plan for all of them, eager, and batches padded to the largest.",
            settings=(
                *_PLANNING,
                *("at", "also", "repeats", "eager", "verify", "arena", "arena_copies"),
            ),
            further=(output("Write the report as JSON."),),
        ),
        make_command(
            "explain",
            commands.explain,
            "Say in words what a saved plan does and why, and draw when its storages leave and return.",
            target="PLAN_FILE",
            further=(PICTURE,),
        ),
        make_command(
            "order",
            ordering.order,
            "Order operations for the lowest peak, with proof.\n\n"
            "TARGET is a model file, a graph, an ordering problem as JSON, or a program like that of the other commands. "
            "Ctrl-C stops the search and keeps the best order so far.",
            settings=("time_limit", "work_limit", "method"),
            further=(
                DIM,
                output("Write the result as JSON."),
            ),
        ),
        make_command(
            "layout",
            layout.layout,
            "Give every buffer an address in one arena, as small as possible or within a capacity, with proof.\n\n"
            "TARGET is a CSV of buffers (id,lower,upper,size), a model file, a plan file, a graph, or a program like that "
            "of the other commands. Ctrl-C stops the search and keeps the best layout so far.",
            settings=("capacity", "time_limit", "work_limit", "seed", "method", "alignment", "workspace"),
            further=(
                PLAN,
                PICTURE,
                TEXT,
                LADDER,
                MEMORIES,
                DIM,
                output("Write the buffers with their offsets as CSV."),
            ),
        ),
        make_command(
            "recompute",
            recompute.recompute,
            "Keep or recompute: the least added time for a budget, with proof.\n\n"
            "INSTANCE is a list of operations as JSON, see docs/reference/recompute-form.md. "
            "Ctrl-C stops the search and keeps the best plan so far.",
            target="INSTANCE",
            settings=("peak", "strategy", "also", "time_limit", "work_limit", "seed"),
            further=(output("Write the result as JSON."),),
        ),
        make_command(
            "sweep",
            recompute.sweep,
            "Plan for many budgets in one search: the curve of time against memory.\n\n"
            "TARGET is a recompute instance as JSON, or a program like that of the other commands. "
            "With --numerics close, regions of the program may run in parts, and another strategy may look for them. "
            "Ctrl-C stops the search and keeps the best curve so far; a curve that was cut short says so.",
            settings=("points", "strategy", "time_limit", "work_limit", "workers", "seed", "numerics"),
            time_limit=CURVE_TIME_LIMIT,
            further=(PICTURE, output("Write the curve as CSV.")),
        ),
        make_command(
            "doctor",
            machine.doctor,
            "Check the installation: versions, conflicts, what is missing.",
            target=None,
        ),
        make_command("devices", machine.devices, "List the devices that can be planned for.", target=None),
    ],
)
click.version_option(__version__, prog_name="neaptide")(cli)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line, by default with the arguments of the process, and gives the exit code: `exit_codes.MEANINGS`."""
    # Read once, when torch is loaded: its start-up notes would stand in the middle of our output.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # Many libraries load this one and warn of what its command line cannot change.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if arguments is None:
        stand_in_for_closed()
    with handled() as interrupts:
        if arguments is None:
            with watched(interrupts), undisturbed_stdout():
                return _main(sys.argv[1:], interrupts)
        return _main(list(arguments), interrupts)


def _main(given: list[str], interrupts: Interrupts) -> int:
    # Known before the arguments are read, for mistakes in the arguments themselves.
    console = Console(as_json="--json" in given)
    with console.listening():
        try:
            code = cli.main(given, prog_name="neaptide", standalone_mode=False, obj=console)
        except click.ClickException as error:
            return console.usage_failure(error)
        except (click.Abort, KeyboardInterrupt):
            return console.interrupted()
        except NeaptideError as error:
            return console.failure(error)
        except SystemExit:
            # click's end where the reader of a help text, such as `head`, has seen enough.
            return exit_codes.DONE
        except Exception as error:  # noqa: BLE001 -- the last place: reported in full, with exit code 1
            # A library may have turned the interrupt into an error of its own.
            if interrupts.were_raised:
                return console.interrupted()
            if isinstance(error, OSError) and console.cannot_print(error):
                return exit_codes.USAGE
            if (told := exit_codes.exhausted(error)) is not None:
                return console.failure(told)
            return console.bug(error)
    return code if isinstance(code, int) else exit_codes.DONE
