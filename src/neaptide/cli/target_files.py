"""Targets that are files, and results that become files; every mistake is told with the file's name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neaptide.errors import SymbolicError, TargetError, UsageError, VerifyError
from neaptide.reading import JsonError, decode_json, place_of
from neaptide.writing import write_atomic

if TYPE_CHECKING:
    from neaptide.ir.graph import Graph


def write_result(path: Path, text: str) -> None:
    try:
        write_atomic(path, text)
    except OSError as error:
        raise UsageError(
            "the result cannot be written", where=str(path), why=error.strerror, next_step="write elsewhere"
        ) from error


def decode_target(path: Path, data: bytes) -> Any:
    """The content of a target that is JSON.

    Raises:
        TargetError: it is not.
    """
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


def read_graph(path: Path, data: bytes) -> Graph:
    """The graph of a target.

    Raises:
        TargetError: it breaks a rule of graphs, or cannot be read as one.
    """
    from neaptide.ir import serial

    try:
        graph = serial.from_json(data)
    except (VerifyError, SymbolicError) as error:
        where = str(path) if error.where is None else f"{path}: {error.where}"
        raise TargetError(
            error.what, where=where, why=error.why, next_step="write the file with neaptide again"
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
