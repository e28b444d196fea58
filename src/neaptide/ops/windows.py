"""The operations of which parts of an image are made: rows of it by number, and other numbers where it has none."""

from __future__ import annotations

from typing import Final

ROWS: Final = "aten.index_select.default"
"""`(self, dim, numbers of elements)`, contiguous."""

SLICE: Final = "aten.slice.Tensor"
"""`(self, dim, start, end, step)`, a view."""

FILL: Final = "aten.masked_fill_.Scalar"
"""`(self, mask, number)`, in place."""

RANGE: Final = "aten.arange.start"
"""`(start, end)`."""

CLAMP: Final = "aten.clamp.default"
"""`(self, least, greatest)`."""

FULL: Final = "aten.full.default"
"""`(shape, number)`."""

PAD: Final = "aten.constant_pad_nd.default"
"""`(self, widths from the last dim on, number)`; what has a negative width is cut off."""
