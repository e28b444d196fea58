from typing import Final

DEFAULT_STRATEGY: Final = "default"
"""The name of the portfolio, among those of single strategies."""
