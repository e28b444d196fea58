"""From a path or a model in memory to a model whose form is sound: nothing of it is changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from neaptide.errors import MissingExtra, TargetError, how_to_install
from neaptide.files.reading import place_of, read_bytes

if TYPE_CHECKING:
    from onnx import ModelProto

FIRST_OPSET: Final = 7
_STANDARD: Final = frozenset({"", "ai.onnx"})
_SHOWN: Final = 200  # characters of a parser's own words


def require_onnx() -> None:
    """Refuse to work on a model file where the package for it is not installed."""
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise MissingExtra(
            "onnx is not installed", why="a model file is read with it", next_step=how_to_install("onnx")
        ) from error


def load_model(source: ModelProto | str | Path) -> tuple[ModelProto, Path | None]:
    """The model of a path, or one from memory; with the path. Bytes of weights in other files are not read.

    Raises:
        MissingExtra: onnx is not installed.
        UnreadableFile: there is no such file, or it has more than 1 GiB.
        TargetError: the file holds no model, or one of a version that nobody here knows.
    """
    require_onnx()
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    if isinstance(source, ModelProto):
        check_versions(source, "the model")
        return source, None
    if not isinstance(source, str | Path):
        raise TargetError(
            f"a model is a path or an onnx.ModelProto, not {type(source).__name__}",
            next_step="give one of the two",
        )
    path = Path(source)
    data = read_bytes(path)
    try:
        model = ModelProto.FromString(data)
    except DecodeError as error:
        raise TargetError(
            f"{path} is no ONNX model",
            where=place_of(path),
            why="it is cut short, nested too deeply, or a file of another kind",
            next_step="check it with onnx.checker.check_model, or export the model again",
        ) from error
    check_versions(model, str(path))
    return model, path


def check_versions(model: ModelProto, what: str) -> None:
    """Refuse a model without a graph, and versions that are older or newer than what is known."""
    from onnx import IR_VERSION, defs

    if not model.HasField("graph") or not model.opset_import:
        raise TargetError(
            f"{what} holds no ONNX model",
            why="it has no graph" if not model.HasField("graph") else "it names no opset",
            next_step="export the model again",
        )
    newest = defs.onnx_opset_version()
    for opset in model.opset_import:
        if opset.domain in _STANDARD and not FIRST_OPSET <= opset.version <= newest:
            raise TargetError(
                f"{what} is of opset {opset.version}",
                why=f"opsets {FIRST_OPSET} to {newest} are known",
                next_step="convert it with onnx.version_converter"
                if opset.version < FIRST_OPSET
                else "install a newer onnx, or export the model for an older opset",
            )
        if not 0 <= opset.version < 1 << 31:
            raise TargetError(
                f"{what} names version {opset.version} of the operators {opset.domain!r}",
                next_step="export the model again",
            )
    if not 0 < model.ir_version <= IR_VERSION:
        raise TargetError(
            f"{what} is of version {model.ir_version} of the file format",
            why=f"versions 1 to {IR_VERSION} are known",
            next_step="install a newer onnx, or export the model again",
        )


def opsets_of(model: ModelProto) -> dict[str, int]:
    """Versions by domain, `""` for the standard one."""
    return {"" if opset.domain in _STANDARD else opset.domain: opset.version for opset in model.opset_import}


def parser_words(error: Exception) -> str:
    """What a library says of a model, in one line and not too long."""
    return " ".join(str(error).split())[:_SHOWN]
