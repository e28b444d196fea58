"""Refuses what a step asks of the outside world during a trace: clock, entropy, files, processes, numpy's arrays.

Each way out of Python leads through a function in C. These are replaced while the trace runs, in their own module,
wherever a module of the standard library holds them too, and in every place of the step's own state that holds one
(`from time import time`). Only calls that the user's code makes are refused, also those that pass through the standard
library (`uuid.uuid4`, `pathlib.Path.read_text`); a library may ask for itself.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import os
import random
import sys
import time
import traceback
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from neaptide.frontends import _torch_private as private
from neaptide.frontends.objects.places import ItemPlace, Place, root_of
from neaptide.frontends.source.asker import users_frame
from neaptide.frontends.source.trace_errors import location, users_line
from neaptide.frontends.source.users_code import names_in
from neaptide.frontends.state.step_state import StepState
from neaptide.frontends.world.generator_calls import GENERATOR_CALLS, generator_stand_ins
from neaptide.frontends.world.opaque_numbers import ClockReading, clock_error
from neaptide.frontends.world.stand_ins import (
    ALWAYS,
    always,
    clock_stand_in,
    frames_stand_in,
    identity_stand_in,
    is_hashed_by_address,
    is_torch_state,
    not_torch,
    numpy_stand_in,
    refusing,
    seed_stand_in,
    without_clock,
)


@dataclass(frozen=True)
class _Root:
    """A module in C through which Python asks the outside world.

    Attributes:
        module: its name; it counts when something has imported it.
        does: what a step does that calls one of its functions.
        harmless: functions that give the same answer as long as the process lives, or none at all.
        only: the functions that ask, where most do not.
    """

    module: str
    does: str
    harmless: frozenset[str] = frozenset()
    only: frozenset[str] | None = None


_ROOTS = (
    _Root(
        os.name if os.name == "nt" else "posix",
        "asks the operating system",
        frozenset(
            {
                "fspath",
                "cpu_count",
                "strerror",
                "getpid",
                "uname",
                "getuid",
                "geteuid",
                "getgid",
                "getegid",
                "getlogin",
                "get_terminal_size",
                "_path_normpath",
                "_path_splitroot",
            }
        ),
    ),
    _Root("_socket", "uses the network"),
    _Root("resource", "asks what the process uses"),
    _Root("_uuid", "makes a random number"),
    _Root("_tracemalloc", "asks what the process uses", only=frozenset({"get_traced_memory"})),
    _Root("gc", "counts objects", only=frozenset({"get_objects", "get_count", "get_stats", "get_referrers"})),
    _Root("_weakref", "counts references", only=frozenset({"getweakrefcount", "getweakrefs"})),
    _Root(
        "sys",
        "asks the interpreter",
        only=frozenset({"getrefcount", "_current_frames", "getallocatedblocks"}),
    ),
    _Root(
        "torch.random",
        "uses the state of torch's random generator",
        frozenset({"fork_rng", *GENERATOR_CALLS}),
    ),
    _Root(
        "torch.cuda.memory",
        "asks how much memory is in use",
        only=frozenset({"memory_stats", "memory_stats_as_nested_dict", "mem_get_info", "memory_snapshot"}),
    ),
)
_CLOCKS = frozenset(
    f"{clock}{unit}"
    for clock in ("time", "perf_counter", "monotonic", "process_time", "thread_time")
    for unit in ("", "_ns")
)
# Functions of `time` that tell the time only when they are called with fewer arguments than this.
_NOW_BELOW = {
    "gmtime": 1,
    "localtime": 1,
    "ctime": 1,
    "asctime": 1,
    "strftime": 2,
    "clock_gettime": ALWAYS,
    "clock_gettime_ns": ALWAYS,
}


@contextlib.contextmanager
def no_outside_world(state: StepState) -> Iterator[None]:
    """Refuse all of it while the context is open; environment variables that are read become guards of `state`."""
    if not state.is_watched:
        yield
        return
    named = frozenset().union(*(names_in(code) for code in state.codes))
    with contextlib.ExitStack() as stack:
        stack.enter_context(_replaced_everywhere(_replacements(named), state))
        stack.enter_context(_watched_environment(state))
        stack.enter_context(_attribute(random.Random, "seed", seed_stand_in(random.Random.seed)))
        network = sys.modules.get("socket")
        if network is not None:
            opened = refusing(network.socket.__init__, "uses the network", hands_on=not_torch)
            stack.enter_context(_attribute(network.socket, "__init__", opened))
        try:
            yield
        except (TypeError, ValueError, RuntimeError) as error:
            if ClockReading.__name__ not in str(error):
                raise
            where = location(users_line(traceback.extract_tb(error.__traceback__)))
            raise clock_error("a clock", where) from None


def refuse_clocks(constants: Iterable[Any]) -> None:
    """Refuse a time among what a step returns.

    Raises:
        CaptureError: at the line that asked the clock.
    """
    for constant in constants:
        if isinstance(constant, ClockReading):
            raise clock_error(constant.clock, constant.where)


@contextlib.contextmanager
def _replaced_everywhere(replacements: Mapping[int, Any], state: StepState) -> Iterator[None]:
    """Replacements are where the originals were held while the context is open."""
    places: dict[tuple[int, Any], Place] = {
        place.identity: place for place in state.watched if id(place.get()) in replacements
    }
    held = [(root, root.get()) for root in map(root_of, places.values())]  # tuples are made anew
    named = [
        (entries, name, entries[name], replacements[id(entries[name])])
        for entries, name in _holders(_sizes(), frozenset(replacements))
        if id(entries.get(name)) in replacements and (id(entries), name) not in places
    ]
    try:
        for place in places.values():
            place.set(replacements[id(place.get())])
        for entries, name, _, replacement in named:
            entries[name] = replacement
        yield
    finally:
        for entries, name, original, _ in named:
            entries[name] = original
        for root, original in reversed(held):
            root.set(original)


def _sizes() -> tuple[int, ...]:
    """How many names each of those modules has."""
    return tuple([len(vars(module)) for module in _standard_modules(len(sys.modules))])


@functools.lru_cache(maxsize=4)
def _holders(_sizes: tuple[int, ...], wanted: frozenset[int]) -> list[tuple[dict[str, Any], str]]:
    """Where such a module names one of some objects, which are given by `id`."""
    return [
        (entries, name)
        for entries in map(vars, _standard_modules(len(sys.modules)))
        for name, content in entries.items()
        if id(content) in wanted
    ]


@functools.lru_cache(maxsize=1)
def _standard_modules(_loaded: int) -> tuple[types.ModuleType, ...]:
    """Modules that hand on what is watched: the standard library's, and torch's that are watched themselves."""
    of_torch = {"torch", "torch.cuda", *(root.module for root in _ROOTS)}
    return tuple(
        module
        for name, module in list(sys.modules.items())
        if isinstance(module, types.ModuleType)
        and (name.partition(".")[0] in sys.stdlib_module_names or name in of_torch)
    )


# -- what stands in ---------------------------------------------------------------------------------------------


def _replacements(named: frozenset[str]) -> dict[int, Any]:
    """What stands in, by `id` of the function or class.

    Libraries call `id`, `hash` and `sys._getframe` at every turn: these are replaced where the user's code has words
    for them.
    """
    pairs: list[tuple[Any, Any]] = [
        (open, refusing(open, "opens a file", hands_on=not_torch)),
        (input, refusing(input, "waits for input")),
        (dt.datetime, without_clock(dt.datetime, ("now", "utcnow", "today"))),
        (dt.date, without_clock(dt.date, ("today",))),
    ]
    if "id" in named:
        pairs.append((id, identity_stand_in(id, always)))
    if "hash" in named:
        pairs.append((hash, identity_stand_in(hash, is_hashed_by_address)))
    if named & _FRAME_WORDS:
        pairs.append((sys._getframe, frames_stand_in(sys._getframe)))  # noqa: SLF001
    pairs += generator_stand_ins()
    pairs += [(make, numpy_stand_in(make)) for make in private.makers_of_tensors()]
    for name, function in vars(time).items():
        if name in _CLOCKS:
            pairs.append((function, clock_stand_in(function, name)))
        elif name in _NOW_BELOW:
            pairs.append((function, refusing(function, f"reads the clock ({name})", below=_NOW_BELOW[name])))
    for root in _ROOTS:
        hands_on = is_torch_state if root.module.startswith("torch.") else not_torch
        for name, function in vars(sys.modules.get(root.module, types.ModuleType(""))).items():
            wanted = name in root.only if root.only is not None else name not in root.harmless
            if wanted and isinstance(function, (types.BuiltinFunctionType, types.FunctionType)):
                pairs.append((function, refusing(function, f"{root.does} ({name})", hands_on=hands_on)))
    return {id(original): replacement for original, replacement in pairs}


# -- environment variables --------------------------------------------------------------------------------------


@contextlib.contextmanager
def _watched_environment(state: StepState) -> Iterator[None]:
    """Variables that the user's code reads are noted in `state`; reading all of them at once is refused."""
    kind: Any = type(os.environ)
    read = kind.__getitem__
    known = {place.identity for place in state.environment}

    def noted(self: Any, key: Any) -> Any:
        place = ItemPlace(f"os.environ[{key!r}]", self, key)
        if place.identity not in known and users_frame(1) is not None:
            known.add(place.identity)
            state.environment.append(place)
        return read(self, key)

    with contextlib.ExitStack() as stack:
        stack.enter_context(_attribute(kind, "__getitem__", noted))
        for name in ("__iter__", "__len__"):
            stand_in = refusing(getattr(kind, name), "reads all environment variables")
            stack.enter_context(_attribute(kind, name, stand_in))
        yield


@contextlib.contextmanager
def _attribute(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    original = vars(owner)[name]
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)


_FRAME_WORDS = frozenset(
    {"_getframe", "currentframe", "stack", "trace", "extract_stack", "format_stack", "walk_stack"}
)
