"""What eviction while a program runs is tuned with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionSettings:
    """Settings of a run.

    Attributes:
        most_executions: for each node of the program, on average; then nothing is evicted any more: it only thrashes.
        most_changes: without a question between them: then all that is remembered of neighbourhoods is forgotten, which is
            cheaper than a walk at each change.
    """

    most_executions: int = 10
    most_changes: int = 16


SETTINGS: Final = EvictionSettings()
