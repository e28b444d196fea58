"""Refuses what goes between the user's code and the outside world during a trace, naming the line.

It would happen once, at the trace, and never again when the captured program runs: output, clock, entropy, files, processes,
numpy's arrays. Each way out of Python leads through a function in C. These are replaced while the trace runs, in their own
module, wherever a module of the standard library holds them too, and in every place of the step's own state that holds one
(`from time import time`). Only calls that the user's code makes are refused, also those that pass through the standard
library (`uuid.uuid4`, `pathlib.Path.read_text`); a library may ask for itself.
"""

from __future__ import annotations

import builtins
import contextlib
import datetime as dt
import functools
import logging
import os
import random
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from neaptide.errors import HostEffectError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.objects.places import ItemPlace, Place, all_replaced, replaced, swapped
from neaptide.frontends.source.call_site import is_observed, users_frame
from neaptide.frontends.source.trace_errors import location, users_line
from neaptide.frontends.source.users_code import is_library_file, is_ours, names_in
from neaptide.frontends.state.step_state import StepState
from neaptide.frontends.world import stand_ins as stand
from neaptide.frontends.world.closed import closed_state
from neaptide.frontends.world.stand_ins import ClockReading, clock_error


class _Root(NamedTuple):
    """A module in C through which Python asks the outside world; it counts when something has imported it.

    `does` says what a step does that calls one of its functions: of those named in `only`, or of all but the `harmless`,
    which give the same answer as long as the process lives, or none at all.
    """

    module: str
    does: str
    harmless: str = ""
    only: str = ""


_ROOTS = (
    _Root(
        os.name if os.name == "nt" else "posix",
        "asks the operating system",
        "fspath cpu_count strerror getpid uname getuid geteuid getgid getegid getlogin get_terminal_size _path_normpath "
        "_path_splitroot",
    ),
    _Root("_socket", "uses the network"),
    _Root("resource", "asks what the process uses"),
    _Root("_uuid", "makes a random number"),
    _Root("_tracemalloc", "asks what the process uses", only="get_traced_memory"),
    _Root("gc", "counts objects", only="get_objects get_count get_stats get_referrers"),
    _Root("_weakref", "counts references", only="getweakrefcount getweakrefs"),
    _Root("sys", "asks the interpreter", only="getrefcount _current_frames getallocatedblocks"),
    _Root(
        "torch.random",
        "uses the state of torch's random generator",
        "fork_rng get_rng_state set_rng_state manual_seed",
    ),
    _Root(
        "torch.cuda.memory",
        "asks how much memory is in use",
        only="memory_stats memory_stats_as_nested_dict mem_get_info memory_snapshot",
    ),
)
_CLOCKS = frozenset(
    f"{clock}{unit}"
    for clock in ("time", "perf_counter", "monotonic", "process_time", "thread_time")
    for unit in ("", "_ns")
)
# Functions of `time` that tell the time only when they are called with fewer arguments than this.
_NOW_BELOW = {"gmtime": 1, "localtime": 1, "ctime": 1, "asctime": 1, "strftime": 2}
_NOW_BELOW |= {"clock_gettime": stand.ALWAYS, "clock_gettime_ns": stand.ALWAYS}
_FRAME_WORDS = frozenset(
    {"_getframe", "currentframe", "stack", "trace", "extract_stack", "format_stack", "walk_stack"}
)
_PRINTS = "the step prints while it runs"

# -- output -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def no_host_traffic(state: StepState) -> Iterator[None]:
    """Refuse output, formatting of what is known only when the step runs, and use of iterators, files and large data."""
    shows_tensor = _unless_library("the step formats a tensor that is known only when it runs")
    shows_number = _unless_library("the step formats a number that is known only when it runs")
    prints = _unless_library(_PRINTS)
    streams = {id(stream): stream for stream in (sys.stdout, sys.stderr) if stream is not None}
    refused: list[tuple[Any, str, Any]] = [
        (builtins, "print", prints),
        (logging.Logger, "handle", _unless_library("the step logs while it runs")),
        *((torch.Tensor, name, shows_tensor) for name in ("__format__", "__repr__")),
        *((stream, "write", prints) for stream in streams.values()),
        *(
            (kind, name, shows_number)
            for kind in (torch.SymFloat, torch.SymInt)
            for name in ("__str__", "__format__", "__repr__")
        ),
    ]
    with all_replaced(refused), closed_state(state):
        yield


def _unless_library(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function that refuses, saying what the step does, but for calls of libraries: they may print."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            frame = users_line(traceback.extract_stack()[:-1])
            if frame is None or _caller_is_library(2):
                return original(*args, **kwargs)
            raise HostEffectError(
                what,
                where=location(users_line(traceback.extract_stack())),
                why="host output would happen once, at capture, and never again",
                next_step="return the value from the step and print it outside",
            )

        return refuse

    return make


def _caller_is_library(depth: int) -> bool:
    """Whether a call comes from library code; logging's own frames are passed over."""
    frame = sys._getframe(depth)  # noqa: SLF001 - a stack summary would read files
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "logging":
        frame = frame.f_back
    return is_library_file(frame.f_code.co_filename) or is_observed(frame)


# -- everything else --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def no_side_effects(state: StepState) -> Iterator[None]:
    """Refuse all of it while the context is open; environment variables that are read become guards of `state`."""
    named = frozenset().union(*(names_in(code) for code in state.codes))
    with contextlib.ExitStack() as stack:
        stack.enter_context(_replaced_everywhere(_replacements(named), state))
        stack.enter_context(_watched_environment(state))
        stack.enter_context(replaced(random.Random, "seed", stand.seed_stand_in))
        network = sys.modules.get("socket")
        if network is not None:
            opening = functools.partial(stand.refusing, does="uses the network", hands_on=stand.not_torch)
            stack.enter_context(replaced(network.socket, "__init__", opening))
        try:
            yield
        except (TypeError, ValueError, RuntimeError) as error:
            if ClockReading.__name__ not in str(error):
                raise
            where = location(users_line(traceback.extract_tb(error.__traceback__)))
            raise clock_error("a clock", where) from None


def refuse_clocks(constants: Iterable[Any]) -> None:
    """Refuse a time among what a step returns, at the line that asked the clock."""
    for constant in constants:
        if isinstance(constant, ClockReading):
            raise clock_error(constant.clock, constant.where)


@contextlib.contextmanager
def _replaced_everywhere(replacements: Mapping[int, Any], state: StepState) -> Iterator[None]:
    """Replacements are where the originals were held while the context is open."""
    places: dict[tuple[int, Any], Place] = {
        place.identity: place for place in state.watched if id(place.get()) in replacements
    }
    named = [
        (entries, name, entries[name], replacements[id(entries[name])])
        for entries, name in _holders(_sizes(), frozenset(replacements))
        if id(entries.get(name)) in replacements and (id(entries), name) not in places
    ]
    with swapped([(place, replacements[id(place.get())]) for place in places.values()]):
        try:
            for entries, name, _, replacement in named:
                entries[name] = replacement
            yield
        finally:
            for entries, name, original, _ in named:
                entries[name] = original


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


def _replacements(named: frozenset[str]) -> dict[int, Any]:
    """What stands in, by `id` of the function or class.

    Libraries call `id`, `hash` and `sys._getframe` at every turn: these are replaced where the user's code has words
    for them.
    """
    pairs: list[tuple[Any, Any]] = [
        (open, stand.refusing(open, "opens a file", hands_on=stand.not_torch)),
        (input, stand.refusing(input, "waits for input")),
        (dt.datetime, stand.without_clock(dt.datetime, ("now", "utcnow", "today"))),
        (dt.date, stand.without_clock(dt.date, ("today",))),
    ]
    if "id" in named:
        pairs.append((id, stand.identity_stand_in(id, stand.always)))
    if "hash" in named:
        pairs.append((hash, stand.identity_stand_in(hash, stand.is_hashed_by_address)))
    if named & _FRAME_WORDS:
        pairs.append((sys._getframe, stand.frames_stand_in(sys._getframe)))  # noqa: SLF001
    pairs += stand.generator_stand_ins()
    pairs += [(make, stand.numpy_stand_in(make)) for make in private.makers_of_tensors()]
    for name, function in vars(time).items():
        if name in _CLOCKS:
            pairs.append((function, stand.clock_stand_in(function, name)))
        elif name in _NOW_BELOW:
            pairs.append(
                (function, stand.refusing(function, f"reads the clock ({name})", below=_NOW_BELOW[name]))
            )
    for root in _ROOTS:
        hands_on = stand.is_torch_state if root.module.startswith("torch.") else stand.not_torch
        only, harmless = root.only.split(), root.harmless.split()
        for name, function in vars(sys.modules.get(root.module, types.ModuleType(""))).items():
            wanted = name in only if only else name not in harmless
            if wanted and isinstance(function, (types.BuiltinFunctionType, types.FunctionType)):
                pairs.append((function, stand.refusing(function, f"{root.does} ({name})", hands_on=hands_on)))
    return {id(original): replacement for original, replacement in pairs}


@contextlib.contextmanager
def _watched_environment(state: StepState) -> Iterator[None]:
    """Variables that the user's code reads are noted in `state`; reading all of them at once is refused."""
    kind: Any = type(os.environ)
    known = {place.identity for place in state.environment}

    def noting(read: Callable[..., Any]) -> Callable[..., Any]:
        def noted(self: Any, key: Any) -> Any:
            place = ItemPlace(f"os.environ[{key!r}]", self, key)
            if place.identity not in known and users_frame(1) is not None:
                known.add(place.identity)
                state.environment.append(place)
            return read(self, key)

        return noted

    reading_all = functools.partial(stand.refusing, does="reads all environment variables")
    with (
        replaced(kind, "__getitem__", noting),
        replaced(kind, "__iter__", reading_all),
        replaced(kind, "__len__", reading_all),
    ):
        yield


# -- modules that a step imports while it is traced get what they named, not what stood in for it ---------------------


@contextlib.contextmanager
def originals_in_new_modules() -> Iterator[None]:
    """At the end, replace each stand-in that a new module holds (`from math import exp`) by what it wraps."""
    loaded = set(sys.modules)
    try:
        yield
    finally:
        for name in sys.modules.keys() - loaded:
            entries = getattr(sys.modules[name], "__dict__", {})
            for key, content in list(entries.items()):
                original = content
                while _is_stand_in(original):
                    original = original.__wrapped__
                if original is not content:
                    dict.__setitem__(entries, key, original)


def _is_stand_in(item: Any) -> bool:
    """Whether neaptide has made something that wraps another thing: a function, a partial of one, or a class."""
    try:
        if "__wrapped__" not in vars(item):
            return False
    except TypeError:
        return False
    if isinstance(item, type):
        return is_ours(getattr(sys.modules.get(item.__module__), "__file__", None) or "")
    code = getattr(getattr(item, "func", item), "__code__", None)
    return code is not None and is_ours(code.co_filename)
