"""What kind of file a target is, and which command takes it: one answer for a file, whatever command it is given to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from neaptide.errors import TargetError, UnreadableFile
from neaptide.reading import JsonError, decode_json, is_file, place_of, read_bytes


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file.

    Attributes:
        what: it is, in words.
        commands: that take it.
        next_step: what can be done with it; `{file}` stands for it.
    """

    what: str
    commands: tuple[str, ...]
    next_step: str


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
_OF_FORMAT: Final[Mapping[str, FileKind]] = {
    "neaptide.plan/": PLAN,
    "neaptide.graph/": GRAPH,
    "neaptide.order/": ORDER,
}
_OF_OTHERS: Final[Mapping[str, str]] = {
    ".onnx": "ONNX",
    ".tflite": "TensorFlow Lite",
    ".pb": "TensorFlow",
    ".h5": "Keras",
    ".keras": "Keras",
    ".mlmodel": "Core ML",
    ".pt": "PyTorch (saved tensors or a saved program)",
    ".pth": "PyTorch (saved tensors or a saved program)",
    ".pt2": "PyTorch (saved tensors or a saved program)",
    ".safetensors": "saved tensors",
    ".gguf": "saved tensors",
}
"""Files that hold a model, or its numbers, and no training step."""


def check_file(command: str, target: str) -> None:
    """Refuse a file that another command takes, or none.

    Args:
        command: that the target is given to.
        target: as typed.

    Raises:
        TargetError: says what the file is, and what can be done with it.
    """
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
    """The kind of a JSON file of ours; None for any other file, and for one that cannot be read."""
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
