"""What is wrong with options together, told before a program is looked at: neither torch nor a target is loaded by then."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

from neaptide.errors import UsageError
from neaptide.exclusions import asked_for, refuse_exclusions
from neaptide.planner.budget import Budget, check_unit
from neaptide.settings import DEFAULTS, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_TOYS: Final = frozenset({"recompute"})
"""Commands on instances whose bytes may be any numbers."""


def check_options(command: str, settings: Settings, names: Collection[str]) -> None:
    """Refuse options that exclude each other, that need another one, or that cannot be meant.

    Args:
        command: that they are given to.
        settings: in force.
        names: of the settings that the command reads.

    Raises:
        UsageError: naming what to leave out, or to write.
    """
    there = {name: getattr(settings, name) if name in names else getattr(DEFAULTS, name) for name in _READ}
    if "peak" in names and command not in _OF_TOYS:
        check_unit(settings.peak)
    _check_needs(there)
    asked = asked_for(
        strategy=there["strategy"],
        numerics=there["numerics"],
        budget=Budget(
            there["peak"],
            latency=there["latency"],
            host=there["host"],
            state_between_steps=there["state_between_steps"],
        ),
        atomic=there["atomic"],
        rewrites=bool(there["rewrite"]),
        trials=there["trials"] is not None,
    )
    others = {
        "also": bool(there["also"]),
        "arena": there["arena"],
        "device": there["device"] not in (None, "this-machine"),
        "dynamic": bool(there["dynamic"]),
        "no_eager": not there["eager"],
        "saved": command == "plan",
        "verify": there["verify"] is True,
    }
    refuse_exclusions({*asked, *(what for what, is_so in others.items() if is_so)}, command=command)


_READ: Final = (
    *("also", "arena", "at", "atomic", "device", "dynamic", "eager", "fit", "host", "latency", "numerics"),
    *("peak", "rewrite", "state_between_steps", "strategy", "trials", "verify"),
)


def _check_needs(there: Mapping[str, Any]) -> None:
    """Refuse what says nothing without another option."""
    if there["at"] and not there["dynamic"]:
        raise UsageError(
            "--at names shapes, and no dim varies", next_step="name a dim, such as --dynamic batch:0=2..64"
        )
    if there["fit"] and not there["dynamic"]:
        raise UsageError(
            "--fit asks for shapes, and no dim varies",
            next_step="name a dim, such as --dynamic batch:0=2..64",
        )
