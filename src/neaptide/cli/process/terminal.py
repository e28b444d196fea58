"""Reports drawn on a terminal with rich, which respects NO_COLOR by itself."""

from __future__ import annotations

import rich.box
import rich.console
import rich.table
import rich.text

from neaptide.report.document import Document, Table


def draw(content: Document, console: rich.console.Console | None = None) -> None:
    """Draws a document on stdout, or on the console given."""
    screen = rich.console.Console(highlight=False) if console is None else console
    for index, block in enumerate(content.blocks):
        if index:
            screen.print()
        if isinstance(block, Table):
            screen.print(_table(block))
        else:
            # Long lines are left to the terminal: a command that is copied from it stays in one piece.
            screen.print(_paragraph(block), soft_wrap=True)


def _paragraph(text: str) -> rich.text.Text:
    head, colon, rest = text.partition(": ")
    if not colon or "\n" in head:
        return rich.text.Text(text)
    # The words up to the colon say what the paragraph is about: `Budget:`, `Next:`.
    return rich.text.Text.assemble((f"{head}:", "bold"), f" {rest}")


def _table(table: Table) -> rich.table.Table:
    drawn = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for index, title in enumerate(table.header):
        drawn.add_column(
            rich.text.Text(title),
            justify="left" if table.is_left(index) else "right",
            no_wrap=not table.is_left(index),
            style="bold" if index == 0 else "",
        )
    for row in table.rows:
        drawn.add_row(*(rich.text.Text(cell) for cell in row))
    return drawn
