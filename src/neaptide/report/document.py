"""Paragraphs and tables before anyone decides how they look: piped as text, or drawn on a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose first column is text and whose others are numbers, unless `left` says otherwise."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[int] = frozenset()  # columns beside the first that hold text

    def is_left(self, column: int) -> bool:
        """Whether the cells of a column stand to the left."""
        return column == 0 or column in self.left

    def plain(self) -> str:
        """The table as aligned text that is a Markdown table too: it can be pasted into an issue. O(cells)."""
        rows = [tuple(cell.replace("|", "\\|") for cell in row) for row in (self.header, *self.rows)]
        # Three is the narrowest rule that every Markdown reader takes.
        widths = [max(3, *(len(cell) for cell in column)) for column in zip(*rows, strict=True)]
        lines = ["| " + " | ".join(self._aligned(row, widths)) + " |" for row in rows]
        rules = [
            "-" * (width + 2) if self.is_left(column) else "-" * (width + 1) + ":"
            for column, width in enumerate(widths)
        ]
        lines.insert(1, "|" + "|".join(rules) + "|")
        return "\n".join(lines)

    def _aligned(self, row: tuple[str, ...], widths: list[int]) -> Iterable[str]:
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            yield cell.ljust(width) if self.is_left(column) else cell.rjust(width)


Block: TypeAlias = "str | Table"


@dataclass(frozen=True, slots=True)
class Document:
    """What a report says, from top to bottom."""

    blocks: tuple[Block, ...]

    def plain(self) -> str:
        """All of it as text, blocks apart by an empty line, without a newline at the end."""
        return "\n\n".join(block.plain() if isinstance(block, Table) else block for block in self.blocks)


def document(*blocks: Block | None) -> Document:
    """A document of those blocks that are there: None and empty text are left out."""
    return Document(tuple(block for block in blocks if block))
