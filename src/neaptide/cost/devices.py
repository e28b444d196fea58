"""What a machine can hold and how fast it moves and computes: plain data.

A `Device` says where its numbers come from. Presets restate public data sheets (`presets.py`);
`calibrate.py` measures the machine it runs on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import msgspec

from neaptide.cost.cache import OpCostCache
from neaptide.errors import UsageError

DeviceKind = Literal["cpu", "cuda"]

HOST_SPACE: Final = "host"
DISK_SPACE: Final = "disk"
"""Where the storages of the host wait."""
DISK_BYTES_PER_S: Final = 200e6
"""Rate to which copies to a file and back are held, each way: below what disks of today give, so that it does not depend
on the disk."""
DISK_LATENCY_S: Final = 100e-6
"""Time that such a copy takes beside its bytes: two threads are woken, and a pause ends late (`benchmarks/offload_runs.py`)."""
_MOST_BYTES: Final = 1 << 62
_NOT_NEGATIVE: Final = [
    "launch_s",
    "half_flops",
    "half_bytes",
    "reserved_bytes",
    "fresh_s_per_byte",
    "fresh_from_bytes",
]


@dataclass(frozen=True, slots=True)
class MemorySpace:
    """One memory that a budget can be set for.

    Attributes:
        capacity_bytes: all of it, before `Device.reserved_bytes` is taken off.
        bandwidth_bytes_per_s: bytes that kernels of the device read plus write per second.
        alignment_bytes: block sizes and addresses are multiples of this.
    """

    name: str
    capacity_bytes: int
    bandwidth_bytes_per_s: float
    alignment_bytes: int

    def __post_init__(self) -> None:
        where = f"memory space {self.name!r}"
        _require(self.capacity_bytes > 0, where, "capacity_bytes is not above zero")
        _require(self.capacity_bytes < _MOST_BYTES, where, "capacity_bytes is more than any memory has")
        _require_positive(self.bandwidth_bytes_per_s, where, "bandwidth_bytes_per_s")
        power_of_two = self.alignment_bytes > 0 and self.alignment_bytes & (self.alignment_bytes - 1) == 0
        _require(power_of_two, where, "alignment_bytes is not a power of two")


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a copy engine between two memory spaces."""

    source: str
    target: str
    bandwidth_bytes_per_s: float
    latency_s: float

    def __post_init__(self) -> None:
        where = f"link {self.source!r} to {self.target!r}"
        _require_positive(self.bandwidth_bytes_per_s, where, "bandwidth_bytes_per_s")
        _require_not_negative(self.latency_s, where, "latency_s")
        _require(self.source != self.target, where, "a link joins two different spaces")

    def seconds(self, nbytes: int) -> float:
        """Time to copy `nbytes` over this link."""
        return self.latency_s + nbytes / self.bandwidth_bytes_per_s


@dataclass(frozen=True, slots=True)
class Device:
    """A machine as the cost model sees it.

    Attributes:
        spaces: the first one is where tensors live by default.
        flops_per_s: dense rate by dtype, in PyTorch's words plus `"tf32"`; must have `"float32"`.
        launch_s: time that one operator call costs whatever its size.
        half_flops: float32 arithmetic per call at which half of the rate is reached; for another dtype it
            grows with the rate, since filling and draining the machine takes the same time.
        half_bytes: traffic per call at which half of the bandwidth is reached.
        fall: how fast a call loses its rate as it gets smaller: the loss grows as `(half / work) ** fall`. At 1 it is the
            same time for each call.
        links: copy engines; a space they name and `spaces` lacks is the `"host"` or the `"disk"`.
        reserved_bytes: of the first space, never available to tensors (context, library workspaces).
        fresh_s_per_byte: time that a byte of a block takes, beyond writing it, that the system has just handed out.
        fresh_from_bytes: blocks of so many bytes are handed out anew at each allocation; 0 where the allocator keeps
            what is freed, as those of accelerators do.
    """

    name: str
    kind: DeviceKind
    spaces: tuple[MemorySpace, ...]
    flops_per_s: dict[str, float] = field(hash=False)
    launch_s: float
    half_flops: float
    half_bytes: float
    links: tuple[Link, ...]
    source: str
    reserved_bytes: int = 0
    fresh_s_per_byte: float = 0.0
    fresh_from_bytes: int = 0
    fall: float = 1.0

    def __post_init__(self) -> None:
        where = f"device {self.name!r}"
        _require(bool(self.spaces), where, "it has no memory space")
        names = [space.name for space in self.spaces]
        _require(len(set(names)) == len(names), where, "two memory spaces have one name")
        _require("float32" in self.flops_per_s, where, "flops_per_s has no rate for float32")
        for dtype, rate in self.flops_per_s.items():
            _require_positive(rate, where, f"flops_per_s[{dtype!r}]")
        for label in _NOT_NEGATIVE:
            _require_not_negative(getattr(self, label), where, label)
        _require(0.0 < self.fall <= 1.0, where, "fall must be above 0 and at most 1")
        _require(self.reserved_bytes < self.spaces[0].capacity_bytes, where, "reserved_bytes leaves nothing")
        for link in self.links:
            for end in (link.source, link.target):
                known = end in names or end in {HOST_SPACE, DISK_SPACE}
                _require(known, where, f"a link ends in unknown space {end!r}")

    @property
    def main_space(self) -> MemorySpace:
        """Where tensors live unless a plan says otherwise."""
        return self.spaces[0]

    @property
    def usable_bytes(self) -> int:
        """Bytes of the main space that tensors can have."""
        return self.main_space.capacity_bytes - self.reserved_bytes

    def link(self, source: str, target: str) -> Link | None:
        """The copy engine from one space to another, if there is one."""
        return next((link for link in self.links if (link.source, link.target) == (source, target)), None)

    @property
    def slow_space(self) -> str:
        """Where storages of the main space wait: the host, and the disk for those of a CPU."""
        return DISK_SPACE if self.kind == "cpu" else HOST_SPACE

    def with_disk(self, bytes_per_s: float) -> Device:
        """The same device, with links from its main space to the disk and back at a rate."""
        name = self.main_space.name
        ends = (name, DISK_SPACE), (DISK_SPACE, name)
        others = tuple(link for link in self.links if (link.source, link.target) not in ends)
        made = tuple(Link(*way, bytes_per_s, DISK_LATENCY_S) for way in ends)
        return replace(self, links=(*others, *made))

    @property
    def host_call_s(self) -> float:
        """Time that a call adds which computes nothing: none where the host makes it while the device works."""
        return self.launch_s if self.kind == "cpu" else 0.0

    def fresh_seconds(self, nbytes: int) -> float:
        """Time that a newly allocated block takes beyond what works on it: 0 for one that the allocator has kept."""
        return nbytes * self.fresh_s_per_byte if 0 < self.fresh_from_bytes <= nbytes else 0.0

    def rate_flops_per_s(self, dtype: str) -> float:
        """Dense arithmetic rate for a dtype; one without its own rate computes at that of float32."""
        return self.flops_per_s.get(dtype, self.flops_per_s["float32"])


CALIBRATION: Final = "calibration: "
"""What the keys of measured devices begin with in the cache."""


def device_of(kept: Mapping[str, Any]) -> Device | None:
    """The device of a calibration in the cache; None where it is none, which costs a new one."""
    try:
        return msgspec.convert(kept.get("device"), Device)
    except (msgspec.ValidationError, UsageError):
        return None


def calibrations(cache: OpCostCache) -> Iterator[Device]:
    """Machines that were measured, as the cache has them."""
    yield from filter(None, map(device_of, cache.starting_with(CALIBRATION)))


def _require(holds: bool, where: str, why: str) -> None:
    if not holds:
        raise UsageError(f"{where} is not possible", why=why, next_step="correct the number")


def _require_positive(value: float, where: str, label: str) -> None:
    _require(0 < value < math.inf, where, f"{label} is {value!r}, not a number above zero")


def _require_not_negative(value: float, where: str, label: str) -> None:
    _require(0 <= value < math.inf, where, f"{label} is {value!r}, not a number of at least zero")
