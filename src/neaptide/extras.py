"""How packages are installed that not everybody needs: by their own names, which every index has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "torch": ("torch>=2.11",),
    "zoo": ("torch>=2.11", "transformers>=5"),
    "plots": ("matplotlib>=3.8",),
}
"""The extras of `pyproject.toml`, by name."""


def how_to_install(extra: str) -> str:
    """The command that installs what an extra needs.

    >>> how_to_install("zoo")
    'pip install "torch>=2.11" "transformers>=5"'
    """
    return " ".join(("pip install", *(f'"{requirement}"' for requirement in REQUIRED[extra])))
