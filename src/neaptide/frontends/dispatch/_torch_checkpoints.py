"""What stands in for torch's activation checkpointing while a step is traced: it runs as in eager, and is noted."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from neaptide.frontends._torch_private import resolve
from neaptide.frontends.recording.notes import Notes
from neaptide.frontends.recording.recording import CheckpointRun

_MODULE = "torch.utils.checkpoint"


class _NotedCall:
    """One checkpointed call. Called itself, it runs the user's function again, as the backward pass does.

    Args:
        function: the user's.
        preserves_draws: it gives its generators the state of the first run while it runs again.
        notes: of the trace.
    """

    def __init__(self, function: Callable[..., Any], preserves_draws: bool, notes: Notes) -> None:
        self._function, self._preserves_draws, self._notes = function, preserves_draws, notes
        self._first = CheckpointRun()

    def first_run(self) -> contextlib.AbstractContextManager[None]:
        """The run of the forward pass is noted."""
        return self._notes.noted(runs=(*self._notes.runs, self._first))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A run of the backward pass, noted."""
        run = CheckpointRun(self._first, self._preserves_draws)
        runs = (run,) if self._preserves_draws else (*self._notes.runs, run)
        with self._notes.noted(runs=runs, sequences=[]):
            return self._function(*args, **kwargs)


class _Replacements:
    """Stand-ins for what `torch.utils.checkpoint` calls.

    No generator is asked for its state: a trace draws nothing. Which runs draw the same numbers is noted.
    """

    def __init__(self, notes: Notes, *, undone: bool) -> None:
        self._notes, self._undone = notes, undone

    def function(self, original: Any) -> type:
        """For the reentrant checkpoint function."""
        notes, undone = self._notes, self._undone

        class NotedFunction:
            @staticmethod
            def apply(function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
                call = _NotedCall(function, preserve_rng_state, notes)
                if undone:
                    with call.first_run():
                        return function(*args)
                has_begun = False

                def run(*args: Any) -> Any:
                    nonlocal has_begun
                    if has_begun:
                        return call(*args)
                    has_begun = True
                    with call.first_run():
                        return function(*args)

                return original.apply(run, False, *args)

        return NotedFunction

    def generator(self, original: Callable[..., Iterator[None]]) -> Callable[..., Iterator[None]]:
        """For what a checkpoint that is not reentrant does around the call."""
        signature = inspect.signature(original)  # torch 2.14 takes by name what earlier ones take by position

        def noted(*args: Any, **kwargs: Any) -> Iterator[None]:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            asked = given.arguments
            call = _NotedCall(asked["fn"], asked["preserve_rng_state"], self._notes)
            asked["fn"], asked["preserve_rng_state"] = call, False
            with call.first_run():
                if self._undone:
                    yield
                else:
                    yield from original(*given.args, **given.kwargs)

        return noted


@contextlib.contextmanager
def noted_checkpoints(notes: Notes, *, undone: bool = False) -> Iterator[None]:
    """Note the runs of each function under `torch.utils.checkpoint`.

    Args:
        notes: of the trace.
        undone: a checkpointed call is a plain one, and nothing runs again.
    """
    module = importlib.import_module(_MODULE)
    made = _Replacements(notes, undone=undone)
    originals = {
        name: resolve(_MODULE, name)
        for name in ("CheckpointFunction", "_is_compiling", *_called_generators(module))
    }
    for name, original in originals.items():
        if name == "_is_compiling":  # a recorder is taken for a compiler
            setattr(module, name, _is_not_compiling)
        else:
            setattr(
                module,
                name,
                made.function(original) if inspect.isclass(original) else made.generator(original),
            )
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(module, name, original)


def _is_not_compiling(*_args: Any) -> bool:
    return False


def _nothing() -> None:
    """Stands for a function that this torch does not have."""


def _called_generators(module: Any) -> list[str]:
    """What `checkpoint` calls around a non-reentrant region; torch 2.15 calls another function than 2.11 to 2.13.

    A name that `checkpoint` does not call would be replaced to no effect, and dropout would be wrong without a word.
    """
    called: set[str] = set()
    for name in ("checkpoint", "_checkpoint_impl"):
        function = inspect.unwrap(getattr(module, name, _nothing))
        called.update(function.__code__.co_names)
    found = sorted(name for name in called if name.startswith("_checkpoint_without_reentrant_generator"))
    if not found:
        resolve(_MODULE, "_checkpoint_without_reentrant_generator, called by checkpoint")
    return found
