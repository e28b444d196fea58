"""Where storages wait, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neaptide.cost.devices import DISK_BYTES_PER_S
from neaptide.errors import UsageError


@dataclass(frozen=True, slots=True)
class SlowMemory:
    """Where the storages of a program wait.

    Those of an accelerator wait in pinned memory of the host, those of the CPU in a file.

    Attributes:
        capacity_bytes: set aside before the first copy. None: as many as the schedule has there at once.
        bytes_per_s: of each direction, for the file.
        folder: of the file; None for the system's folder of temporary files.

    Raises:
        UsageError: a number that cannot be meant.
    """

    capacity_bytes: int | None = None
    bytes_per_s: float = DISK_BYTES_PER_S
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.capacity_bytes is not None and self.capacity_bytes < 0:
            raise UsageError(f"capacity_bytes={self.capacity_bytes} is no number of bytes")
        if not 0 < self.bytes_per_s < float("inf"):
            raise UsageError(f"bytes_per_s={self.bytes_per_s} is no rate", next_step="give bytes per second")


DEFAULT_SLOW_MEMORY: Final = SlowMemory()
