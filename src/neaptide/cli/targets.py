"""From `file.py:factory` or `zoo:NAME@SIZE` to a factory; every mistake is named with its file and what to write."""

from __future__ import annotations

import ast
import contextlib
import difflib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

from neaptide.cli.files import kind_of
from neaptide.errors import NeaptideError, TargetError, UnreadableFile
from neaptide.files.reading import is_file, is_there, place_of, read_text
from neaptide.runtime.steps.arguments import check_made, described, place_of_code

Step: TypeAlias = Callable[..., Any]

_ZOO: Final = "zoo:"
_FORMS: Final = "file.py:factory or zoo:NAME@SIZE, such as zoo:gpt2@small"
_EXAMPLE: Final = (
    "def factory(): ...; return step, batch   # step(batch) does forward, loss, backward and update"
)


@dataclass(frozen=True, slots=True)
class Target:
    """What a command works on, as it was typed; its factory makes a fresh `(step, batch)` at each call.

    `card`: the device that it is built for, where that need not be there.
    """

    text: str
    factory: Callable[[], Any]
    card: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process the target is found again by its text."""
        return find_target, (self.text, self.card)

    def build(self) -> tuple[Step, Any]:
        """A fresh step and its batch."""
        try:
            with _built_for(self.card):
                made = self.factory()
        except NeaptideError:
            raise
        except (Exception, SystemExit, GeneratorExit) as error:
            exits = isinstance(error, SystemExit)
            raise TargetError(
                f"the factory of {self.text} failed",
                where=_innermost(error),
                why="it ends the process" if exits else _words(error),
                next_step="return (step, batch) instead of calling sys.exit"
                if exits
                else "mend the factory; -vv shows the traceback",
            ) from error
        return check_made(made, self.factory, f"the factory of {self.text}", TargetError)


def find_target(text: str, card: str | None = None) -> Target:
    """The target of a command line: `file.py:factory` or `zoo:NAME@SIZE[,OPTION...]`.

    With the name of a card, the program is built as if it were there: what it puts there has no bytes, and a zoo model is
    put there.
    """
    if text.startswith(_ZOO):
        return Target(text, _zoo_factory(text.removeprefix(_ZOO), card), card)
    path_text, colon, name = text.rpartition(":")
    if not colon or name.endswith(".py"):
        raise _incomplete(text)
    path = Path(path_text)
    if not is_file(path):
        raise _missing_file(text, path)
    if path.suffix != ".py":
        raise TargetError(f"{path} is no Python file", next_step=f"write {_FORMS}")
    with _built_for(card):
        module = _load(path)
    return Target(text, _function(module, path, name), card)


def _built_for(card: str | None) -> contextlib.AbstractContextManager[None]:
    """What a program is built in."""
    if card is None:
        return contextlib.nullcontext()
    from neaptide.frontends.card.pretended import built_for, card_named

    return built_for(card_named(card))


def with_factory(text: str) -> str:
    """A target as a program with its factory: the first that the file has, where none is named."""
    path = Path(text)
    if path.suffix != ".py" or not is_file(path):
        return text
    try:
        names = _candidates(read_text(path))
    except (UnreadableFile, SyntaxError, ValueError, RecursionError, MemoryError):
        names = []
    return f"{text}:{names[0] if names else 'NAME'}"


def _zoo_factory(spec: str, card: str | None) -> Callable[[], Any]:
    from neaptide import zoo

    names_device = any(part.strip().startswith("device=") for part in spec.split(","))
    return zoo.factory(spec, **({"device": "cuda"} if card is not None and not names_device else {}))


def _incomplete(text: str) -> TargetError:
    path = Path(text)
    if path.suffix == ".py" and is_file(path):
        return TargetError(
            f"the target {text!r} names no factory",
            where=str(path),
            why=_candidates_in(path),
            next_step=f"write {text}:NAME, where NAME is a function that returns (step, batch)",
        )
    if path.suffix == ".json" and is_file(path):
        if (kind := kind_of(path)) is not None:
            return TargetError(
                f"{text} is {kind.what}, and a target is a program",
                next_step=kind.next_step.format(file=text),
            )
        return TargetError(
            f"{text} is JSON of no kind that is known, and a target is a program", next_step=f"write {_FORMS}"
        )
    if path.suffix == ".py":
        return _missing_file(text, path)
    return TargetError(f"{text!r} is no target", next_step=f"write {_FORMS}")


def _missing_file(text: str, path: Path) -> TargetError:
    folder = path.parent
    try:
        near = sorted(entry.name for entry in folder.glob("*.py") if is_file(entry))
    except (OSError, ValueError):
        near = []
    close = difflib.get_close_matches(path.name, near, n=1)
    hint = f"did you mean {folder / close[0]}? " if close else ""
    found = "something that is no file" if is_there(path) else "a file that is not there"
    return TargetError(
        f"the target {text!r} names {found}",
        where=place_of(path),
        next_step=f"{hint}check the path; a target is {_FORMS}",
    )


def _candidates(source: str) -> list[str]:
    """Functions at the top of a file that can be called without arguments."""
    found = []
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.FunctionDef) and not statement.name.startswith("_"):
            given = statement.args
            required = len(given.posonlyargs) + len(given.args) - len(given.defaults)
            if required <= 0 and None not in given.kw_defaults:
                found.append(statement.name)
    return found


def _candidates_in(path: Path) -> str:
    try:
        names = _candidates(read_text(path))
    except UnreadableFile as error:
        return f"the file cannot be read: {error.why}"
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # Python's parser gives up on deep nesting with the last two, and on a null character with the second.
        return f"the file cannot be parsed: {_words(error)}"
    return f"functions without arguments there: {', '.join(names) or 'none'}"


def _load(path: Path) -> ModuleType:
    """Runs a file as a module, its folder first on the path so that it finds its neighbours."""
    folder = str(path.absolute().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    taken = path.stem in sys.modules or path.stem in sys.stdlib_module_names or not path.stem.isidentifier()
    name = f"neaptide_target_{path.stem}" if taken else path.stem
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is no Python file", next_step=f"write {_FORMS}")
    module = importlib.util.module_from_spec(spec)
    # Registered while it runs: dataclasses and pickle look a module up by its name.
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit, GeneratorExit) as error:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        if isinstance(error, NeaptideError):
            raise
        exits = isinstance(error, SystemExit)
        raise TargetError(
            f"{path} cannot be imported",
            where=_innermost(error, str(path.absolute())),
            why="it ends the process while it is imported" if exits else _words(error),
            next_step='put what runs the program under if __name__ == "__main__":'
            if exits
            else "mend the file; -vv shows the traceback",
        ) from error
    return module


def _function(module: ModuleType, path: Path, name: str) -> Callable[[], Any]:
    try:
        found = getattr(module, name, None)
    except Exception as error:
        # A module may have a `__getattr__` of its own.
        raise TargetError(
            f"{path} fails when it is asked for {name!r}",
            where=_innermost(error, str(path.absolute())),
            why=_words(error),
            next_step="mend its __getattr__",
        ) from error
    if found is None:
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise TargetError(
            f"{path} has no {name!r}",
            where=place_of(path),
            why=_candidates_in(path),
            next_step=f"{hint}write {path}:NAME, where NAME is a function that returns (step, batch)",
        )
    if not callable(found):
        raise TargetError(
            f"{name!r} in {path} is {described(found)}, not a function",
            where=place_of(path),
            why=_candidates_in(path),
            next_step=f"write a factory: {_EXAMPLE}",
        )
    required = _required_arguments(found)
    if required:
        raise TargetError(
            f"{name!r} in {path} takes arguments: {', '.join(required)}",
            where=place_of_code(found),
            why="a target is a factory: it is called without arguments and returns (step, batch)",
            next_step=f"write one beside it: {_EXAMPLE}",
        )
    factory: Callable[[], Any] = found
    return factory


def _required_arguments(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        # Some built-in callables have no signature; calling it will tell.
        return []
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
    ]


def _words(error: BaseException) -> str:
    """Type and message, or what there is of it: a class of the user's may fail to say it."""
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 -- whatever it raises, the error that is reported is the first one
        said = "(its message cannot be made)"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _innermost(error: BaseException, path: str | None = None) -> str | None:
    """The line that raised; with a path, the last line of that file on the way there."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if frame.filename == path] or frames
    return f"{inside[-1].filename}:{inside[-1].lineno}" if inside else path
