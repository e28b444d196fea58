"""Layout problems and layouts as CSV, in the columns of MiniMalloc.

The columns, their aliases, the inclusive `end` and the form of gaps are those of google/minimalloc, `converter.cc`.
Beyond it, fields may be quoted, an empty optional field is the default, and `kind` says what a buffer is for.
"""

from __future__ import annotations

import csv
import difflib
import io
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neaptide.errors import LayoutProblemError
from neaptide.layout.problem import Buffer, Gap, LayoutProblem, first_fault
from neaptide.layout.result import Layout

REQUIRED: Final = ("id", "lower", "upper", "size")
OPTIONAL: Final = ("alignment", "gaps", "offset", "kind", "hint")
_ALIASES: Final[Mapping[str, str]] = {
    "buffer": "id",
    "buffer_id": "id",
    "begin": "lower",
    "start": "lower",
    "end": "upper",
}
_COLUMNS: Final[Mapping[str, str]] = {"name": "id", "start": "lower", "end": "upper", "nbytes": "size"}
"""Of the fields of a buffer whose names are others."""
_INCLUSIVE: Final = "end"  # the alias of `upper` that counts the last step in, for gaps as well
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_MOST_DIGITS: Final = 30  # far beyond every limit, and quick to convert
_GAP: Final = re.compile(r"([0-9]{1,30})-([0-9]{1,30})(?:@([0-9]{1,30}):([0-9]{1,30}))?")
_BYTE_ORDER_MARK: Final = "\ufeff"
_SHOWN: Final = 40  # characters of a field in a message

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Table:
    """The header: place of each column by its own name, and the name under which it stands in the file."""

    places: Mapping[str, int]
    titles: tuple[str, ...]
    extra_steps: int
    path: str | None

    def field(self, record: Sequence[str], column: str) -> str:
        place = self.places.get(column)
        return "" if place is None else record[place].strip()

    def where(self, line: int, column: str | None = None) -> str:
        title = "" if column is None else f", column {self.titles[self.places[column]]!r}"
        return _line(self.path, line) + title


def read_csv(text: str, *, path: str | Path | None = None) -> LayoutProblem:
    r"""The layout problem in a CSV text.

    The first line that is not blank is the header: `id`, `lower`, `upper` and `size` in any order; `alignment`,
    `gaps`, `offset` (where the buffer is fixed; empty for anywhere) and `kind` may be there. `hint`, MiniMalloc's
    start of its own search, is read over. Blank lines, a byte order mark and both kinds of line ends are fine.

    Args:
        path: where it comes from, for messages and as the name of the problem.

    Raises:
        LayoutProblemError: names the line and, where it is about one, the column.

    >>> read_csv("id,lower,upper,size\na,0,2,8\n").buffers[0].nbytes
    8
    """
    source = None if path is None else str(path)
    records = _records(text.removeprefix(_BYTE_ORDER_MARK), source)
    first = next(records, None)
    if first is None:
        raise LayoutProblemError(
            "there are no buffers", where=source, why="the text is empty", next_step=_HEADER_STEP
        )
    table = _header(*first, source)
    lines: list[int] = []
    buffers: list[Buffer] = []
    for line, record in records:
        buffers.append(_buffer(table, line, record))
        lines.append(line)
    if not buffers:
        raise LayoutProblemError(
            "there are no buffers",
            where=_line(source, first[0]),
            why="the header is the only line",
            next_step="write a line for each buffer",
        )
    if (fault := first_fault(buffers)) is not None:
        where = table.where(lines[fault.index], _COLUMNS.get(fault.field, fault.field))
        raise LayoutProblemError(fault.what, where=where, why=fault.why, next_step="mend the line")
    return LayoutProblem(tuple(buffers), Path(source).stem if source is not None else "")


def write_csv(problem: LayoutProblem, layout: Layout | None = None) -> str:
    """A problem, or a problem with its layout, as CSV text that `read_csv` takes.

    `id`, `lower`, `upper` and `size`, then whichever of `alignment`, `gaps` and `kind` are in use; last `offset`:
    of the layout, else of the fixed buffers alone.
    """
    offsets = [buffer.offset for buffer in problem.buffers] if layout is None else list(layout.offsets)
    columns: dict[str, list[str]] = {
        "id": [buffer.name for buffer in problem.buffers],
        "lower": [str(buffer.start) for buffer in problem.buffers],
        "upper": [str(buffer.end) for buffer in problem.buffers],
        "size": [str(buffer.nbytes) for buffer in problem.buffers],
    }
    if any(buffer.alignment != 1 for buffer in problem.buffers):
        columns["alignment"] = [str(buffer.alignment) for buffer in problem.buffers]
    if problem.has_gaps:
        columns["gaps"] = [" ".join(map(_gap_text, buffer.gaps)) for buffer in problem.buffers]
    if any(buffer.kind for buffer in problem.buffers):
        columns["kind"] = [buffer.kind for buffer in problem.buffers]
    if layout is not None or any(offset is not None for offset in offsets):
        columns["offset"] = ["" if offset is None else str(offset) for offset in offsets]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return out.getvalue()


_HEADER_STEP: Final = f"write a header: {','.join(REQUIRED)}, and any of {', '.join(OPTIONAL)}"


def _records(text: str, source: str | None) -> Iterator[tuple[int, list[str]]]:
    """Each record that is not blank, with the line on which it begins."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise LayoutProblemError(
                "the text is no CSV", where=_line(source, line), why=str(error), next_step="mend the line"
            ) from error
        if any(field.strip() for field in record):
            yield line, record


def _header(line: int, record: Sequence[str], source: str | None) -> _Table:
    places: dict[str, int] = {}
    titles = tuple(field.strip() for field in record)
    where = _line(source, line)
    for place, title in enumerate(titles):
        column = _ALIASES.get(title, title)
        if column in places:
            raise LayoutProblemError(
                f"two columns say {column!r}",
                where=where,
                why=f"columns {places[column] + 1} and {place + 1} are {titles[places[column]]!r} and {title!r}",
                next_step="leave one of them out",
            )
        if column not in {*REQUIRED, *OPTIONAL}:
            raise _unknown_column(title, where)
        places[column] = place
    missing = [column for column in REQUIRED if column not in places]
    if missing:
        raise LayoutProblemError(
            f"there is no column {missing[0]!r}",
            where=where,
            why=f"the header has {', '.join(titles)}",
            next_step=_HEADER_STEP,
        )
    if "hint" in places:
        _logger.warning("the column 'hint' is not used")
    return _Table(places, titles, int(_INCLUSIVE in titles), source)


def _unknown_column(title: str, where: str) -> LayoutProblemError:
    close = difflib.get_close_matches(title.lower(), (*REQUIRED, *OPTIONAL, *_ALIASES), n=1)
    if _INTEGER.fullmatch(title):
        why = "it looks like a line of numbers; the first line is the header"
    else:
        why = "what it means is not known, and leaving it out might change the problem"
    return LayoutProblemError(
        f"there is no column {_shown(title)} in this form",
        where=where,
        why=why,
        next_step=(f"did you mean {close[0]}? " if close else "") + _HEADER_STEP,
    )


def _buffer(table: _Table, line: int, record: Sequence[str]) -> Buffer:
    if len(record) != len(table.titles):
        raise LayoutProblemError(
            f"the line has {len(record)} fields",
            where=_line(table.path, line),
            why=f"the header has {len(table.titles)} columns",
            next_step="put a name that holds a comma into double quotes",
        )
    name = table.field(record, "id")
    if not name:
        raise LayoutProblemError(
            "the buffer has no id", where=table.where(line, "id"), next_step="write a name or a number"
        )
    fixed = table.field(record, "offset")
    alignment = table.field(record, "alignment")
    return Buffer(
        name,
        _integer(table, line, record, "lower"),
        _integer(table, line, record, "upper") + table.extra_steps,
        _integer(table, line, record, "size"),
        alignment=_integer(table, line, record, "alignment") if alignment else 1,
        offset=_integer(table, line, record, "offset") if fixed else None,
        gaps=_gaps(table, line, record),
        kind=table.field(record, "kind"),
    )


def _integer(table: _Table, line: int, record: Sequence[str], column: str) -> int:
    text = table.field(record, column)
    if _INTEGER.fullmatch(text) and len(text) <= _MOST_DIGITS:
        return int(text)
    raise LayoutProblemError(
        f"{_shown(text)} is no whole number" if len(text) <= _MOST_DIGITS else f"{_shown(text)} is too long",
        where=table.where(line, column),
        next_step="write decimal digits, without a point, an exponent or a unit",
    )


def _gaps(table: _Table, line: int, record: Sequence[str]) -> tuple[Gap, ...]:
    gaps = []
    for text in table.field(record, "gaps").split():
        found = _GAP.fullmatch(text)
        if found is None:
            raise LayoutProblemError(
                f"{_shown(text)} is no gap",
                where=table.where(line, "gaps"),
                next_step="write lower-upper, or lower-upper@low:high with the bytes still in use; spaces between gaps",
            )
        lower, upper, low, high = found.groups()
        window = None if low is None else (int(low), int(high))
        gaps.append(Gap(int(lower), int(upper) + table.extra_steps, window))
    return tuple(gaps)


def _gap_text(gap: Gap) -> str:
    window = "" if gap.window is None else f"@{gap.window[0]}:{gap.window[1]}"
    return f"{gap.start}-{gap.end}{window}"


def _line(path: str | None, line: int) -> str:
    return f"line {line}" if path is None else f"{path}:{line}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")
