from typing import Final

DEFAULT_STRATEGY: Final = "default"
"""The name of the portfolio, among those of single strategies."""

BITWISE: Final = "bitwise"
"""Every number has the bits that eager gives."""
CLOSE: Final = "close"
"""Sums may be taken in another order."""
