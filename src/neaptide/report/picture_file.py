"""What all pictures share: which files they go into, text that XML can hold, and matplotlib where it is needed."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final
from xml.sax.saxutils import escape

from neaptide.errors import MissingExtra, UsageError
from neaptide.extras import how_to_install
from neaptide.writing import replacing, write_atomic

# XML 1.0 has no way to write these, escaped or not.
_NOT_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def check_picture_path(path: str | Path) -> Path:
    """Make sure, before anything long begins, that a picture can be drawn into such a file.

    Raises:
        UsageError: neither `.svg` nor `.png`.
        MissingExtra: `.png`, and matplotlib is not installed.
    """
    target = Path(path)
    if target.suffix not in {".svg", ".png"}:
        raise UsageError(
            f"{target.name!r} is no picture", where=str(target), next_step="end the name in .svg or .png"
        )
    if target.suffix == ".png":
        matplotlib_module("figure")
    return target


def write_picture(path: str | Path, svg: Callable[[], str], save_png: Callable[[Path], None]) -> None:
    """Draw into a file: `.svg`, or `.png` with the extra `plots`.

    Args:
        path: of the file.
        svg: gives the text of an SVG file.
        save_png: writes a PNG file.

    Raises:
        UsageError: another suffix, or the file cannot be written.
        MissingExtra: matplotlib is not installed.
    """
    target = check_picture_path(path)
    try:
        if target.suffix == ".svg":
            write_atomic(target, svg())
        else:
            with replacing(target) as draft:
                save_png(draft)
    except OSError as error:
        raise UsageError(
            "the picture cannot be written",
            where=str(target),
            why=error.strerror,
            next_step="write elsewhere",
        ) from error


@dataclass(frozen=True, slots=True)
class Sheet:
    """What an SVG picture is drawn on, in pixels.

    Attributes:
        width: of the whole.
        height: of the whole.
        left: margin.
        right: margin.
    """

    width: int
    height: int
    left: int
    right: int


def svg_text(sheet: Sheet, heading: str, summary: str, parts: Iterable[str]) -> str:
    """An SVG file: a heading and a summary above what is drawn.

    Args:
        sheet: it is drawn on.
        heading: at the left, and what a reader of the screen is told first.
        summary: at the right, likewise.
        parts: elements.
    """
    heading, summary = xml_text(heading), xml_text(summary)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {sheet.width} {sheet.height}" role="img">',
        f"<title>{heading}</title>",
        f"<desc>{summary}</desc>",
        '<g font-family="sans-serif" font-size="13">',
        f'<rect width="{sheet.width}" height="{sheet.height}" fill="#fff"/>',
        f'<text x="{sheet.left}" y="24" font-size="17">{heading}</text>',
        f'<text x="{sheet.width - sheet.right}" y="24" text-anchor="end">{summary}</text>',
        *parts,
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def xml_text(text: str) -> str:
    """Text as XML can hold it."""
    return escape(_NOT_IN_XML.sub("\ufffd", text))


def matplotlib_module(name: str) -> ModuleType:
    """A module of matplotlib.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return importlib.import_module(f"matplotlib.{name}")
    except ImportError as error:
        raise MissingExtra(
            "matplotlib is not installed",
            why="pictures in PNG are drawn with it; SVG needs nothing",
            next_step=f"{how_to_install('plots')}, or end the name in .svg",
        ) from error
