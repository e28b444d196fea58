"""The version, where every room can read it: the package itself imports what it lends its names to."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
