"""Files on the command line: what kind a target is and which command takes it, reading it, and writing results."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neaptide.errors import SymbolicError, TargetError, UnreadableFile, UsageError, VerifyError
from neaptide.files.reading import JsonError, decode_json, is_file, place_of, read_bytes, read_text
from neaptide.files.writing import write_atomic

if TYPE_CHECKING:
    from neaptide.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file: in words, the commands that take it, and what can be done with it; `{file}` stands for it."""

    what: str
    commands: tuple[str, ...]
    next_step: str


GRAPH_SUFFIX: Final = ".graph"
MODEL_SUFFIXES: Final = (".onnx", ".tflite")
PLAN: Final = FileKind(
    "a plan file",
    ("explain", "layout"),
    "neaptide explain {file}, or neaptide run train.py:factory --plan {file}",
)
GRAPH: Final = FileKind(
    "a graph file",
    ("order", "layout"),
    "neaptide order {file}, or neaptide layout {file}; a step is captured from a program: train.py:factory",
)
ORDER: Final = FileKind("an ordering problem", ("order",), "neaptide order {file}")
INSTANCE: Final = FileKind(
    "a recompute instance",
    ("recompute", "sweep"),
    "neaptide recompute {file} --peak 60%, or neaptide sweep {file}",
)
MODEL: Final = FileKind(
    "a model file",
    ("profile", "plan", "grad", "order", "layout"),
    "neaptide plan {file} -o out, or neaptide order {file}",
)
_OF_FORMAT: Final[Mapping[str, FileKind]] = {
    "neaptide.plan/": PLAN,
    "neaptide.order/": ORDER,
}
_OF_OTHERS: Final[Mapping[str, str]] = {
    ".pb": "TensorFlow",
    ".h5": "Keras",
    ".keras": "Keras",
    ".mlmodel": "Core ML",
    **dict.fromkeys((".pt", ".pth", ".pt2"), "PyTorch (saved tensors or a saved program)"),
    **dict.fromkeys((".safetensors", ".gguf"), "saved tensors"),
}
"""Files that hold a model, or its numbers, and no training step."""


def check_file(command: str, target: str) -> None:
    """Refuse a file that another command takes, or none."""
    file, colon, _ = target.rpartition(":")
    path = Path(file if colon and Path(file).suffix in _OF_OTHERS else target)
    if path.suffix in _OF_OTHERS:
        raise TargetError(
            f"{path} is a file of another kind: {_OF_OTHERS[path.suffix]}",
            where=place_of(path),
            why="what is planned is a training step in Python, with its loss, its backward and its update",
            next_step="write a factory that builds the model in PyTorch and returns (step, batch): train.py:factory",
        )
    kind = kind_of(path)
    if kind is not None and command not in kind.commands:
        raise TargetError(
            f"{path} is {kind.what}, which `neaptide {command}` does not take",
            where=place_of(path),
            next_step=kind.next_step.format(file=path),
        )


def kind_of(path: Path) -> FileKind | None:
    """The kind of a file that is taken; None for any other file, and for one that cannot be read."""
    if is_model(path):
        return MODEL
    if path.suffix == GRAPH_SUFFIX:
        return GRAPH if is_file(path) else None
    if path.suffix != ".json" or not is_file(path):
        return None
    try:
        content: Any = decode_json(read_bytes(path))
    except (UnreadableFile, JsonError):
        return None
    if isinstance(content, list):
        is_node = bool(content) and isinstance(content[0], dict) and "deps" in content[0]
        return INSTANCE if is_node else None
    form = content.get("format") if isinstance(content, dict) else None
    if not isinstance(form, str):
        return None
    return next((kind for family, kind in _OF_FORMAT.items() if form.startswith(family)), None)


def is_model(target: str | Path) -> bool:
    """Whether a target is a model file, by its suffix."""
    return Path(target).suffix in MODEL_SUFFIXES


def write_result(path: Path, text: str) -> None:
    """Write a result, whole or not at all."""
    try:
        write_atomic(path, text)
    except OSError as error:
        raise _not_written(path, error.strerror) from error


def check_writable(path: Path) -> None:
    """Make sure, before anything long begins, that a result can be written."""
    if not path.absolute().parent.is_dir():
        raise UsageError(
            "the result cannot be written",
            where=str(path),
            why=f"there is no folder {path.absolute().parent}",
            next_step="make the folder first, or write elsewhere",
        )
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
        raise _not_written(path, error.strerror) from error


def check_folder(path: Path) -> None:
    """Make sure, before anything long begins, that results can be written into a folder; it is made if it is not there."""
    try:
        path.mkdir(exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _not_written(path, error.strerror) from error


def _not_written(path: Path, why: str | None) -> UsageError:
    return UsageError("the result cannot be written", where=str(path), why=why, next_step="write elsewhere")


def decode_target(path: Path, data: bytes) -> Any:
    """The content of a target that is JSON."""
    try:
        return decode_json(data)
    except JsonError as error:
        raise TargetError(
            f"{str(path)!r} is no JSON", where=place_of(path), why=str(error), next_step="check the file"
        ) from error


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """A mistake in a file is told with the file's name."""
    try:
        yield
    except UsageError as error:
        if error.where is not None:
            raise
        next_step = error.next_step or "mend the file"
        raise TargetError(error.what, where=str(path), why=error.why, next_step=next_step) from error


def read_graph(path: Path) -> Graph:
    """The graph of a target in the text form."""
    from neaptide.ir.text.parser import parse_graph

    try:
        graph = parse_graph(read_text(path))
    except (VerifyError, SymbolicError) as error:
        where = str(path) if error.where is None else f"{path}: {error.where}"
        raise TargetError(
            error.what,
            where=where,
            why=error.why,
            next_step="write the file with neaptide.ir.text.writer.print_graph",
        ) from error
    sizes = [storage.nbytes for storage in graph.storages]
    sizes += [loop.trip_count for node in graph.nodes for loop in node.regions]
    unknown = sorted(frozenset().union(*(size.dims() for size in sizes)))
    if unknown:
        raise TargetError(
            "the graph has sizes that are no numbers",
            where=str(path),
            why=f"they depend on {', '.join(unknown)}",
            next_step="write the graph of one set of shapes",
        )
    return graph
