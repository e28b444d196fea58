"""How many examples a property test tries: a part of them on every change, all of them in full and thorough runs."""

from __future__ import annotations

import os

_PART = 20


def examples(full: int) -> int:
    """`full` with HYPOTHESIS_PROFILE=full or thorough, else a twentieth of it."""
    return full if os.environ.get("HYPOTHESIS_PROFILE") in {"full", "thorough"} else -(-full // _PART)
