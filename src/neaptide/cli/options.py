"""Settings of a command as options of the public functions; what excludes each other is told before a program is looked at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from neaptide.ask import THIS_MACHINE
from neaptide.budget import Budget, check_unit
from neaptide.errors import UsageError
from neaptide.options import asked_for, refuse_exclusions
from neaptide.settings import Settings, parse_dims
from neaptide.units import parse_size

if TYPE_CHECKING:
    from neaptide.runtime.arena.plan import ArenaOptions, Copies

_OF_TOYS: Final = frozenset({"recompute"})
"""Commands on instances whose bytes may be any numbers."""
_DIM: Final = "name a dim, such as --dynamic batch:0=2..64"


def check_options(command: str, settings: Settings) -> None:
    """Refuse options that exclude each other, that need another one, or that cannot be meant. Torch is not loaded for it."""
    if command not in _OF_TOYS:
        check_unit(settings.peak)
    if settings.at and not settings.dynamic:
        raise UsageError("--at names shapes, and no dim varies", next_step=_DIM)
    if settings.fit and not settings.dynamic:
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
