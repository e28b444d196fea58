"""Devices with the figures of public data sheets, entered without the documents at hand.

They have not been compared with the documents yet, and `Device.source` says so: check a figure before relying on it.

Rates are dense (data sheets often print the doubled figure for structured sparsity) and tensor-core rates
accumulate in float32. Bandwidths are the printed peaks, which real kernels do not reach: a preset ranks
plans and gives a floor for time; measured costs replace it wherever they exist.

Not in any data sheet, and estimated here for all of them:

* `launch_s`: one operator call from Python, about 5 us.
* `half_flops`, `half_bytes` and `fall`: fitted to what MAGIS (Chen et al., ASPLOS 2024) measured on an RTX 3090 when
  whole steps run in 2 to 32 parts, 19 figures of seven networks, and to the time of its U-Net beside the roofline:
  `benchmarks/preset_utilisation.py`. All other cards take the same, as a share of their rates, and were not measured.
* `reserved_bytes`: 0.5 GiB for the driver context and library workspaces, plus 1/16 of the memory where
  error correction is kept in it (GDDR6 data-centre cards).
* PCIe: per direction, after the line code (128b/130b), 10 us latency for a copy.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final

from neaptide.cost.cards.cublas import library_blocks
from neaptide.cost.devices import HOST_SPACE, Device, Link, MemorySpace
from neaptide.errors import UsageError

_GIB: Final = 2**30
_TERA: Final = 1e12
_GIGA: Final = 1e9
_LAUNCH_S: Final = 5e-6
_HALF_S: Final = 3e-6
_FALL: Final = 0.25
_COPY_LATENCY_S: Final = 10e-6
_CONTEXT_BYTES: Final = _GIB // 2
# PyTorch's caching allocator rounds every block up to 512 bytes.
_CUDA_ALIGNMENT_BYTES: Final = 512
_PCIE_X16_BYTES_PER_S: Final = {3: 15.75e9, 4: 31.5e9, 5: 63.0e9}


_A100: Final = {"float32": 19.5, "tf32": 156.0, "bfloat16": 312.0, "float16": 312.0, "float64": 9.7}
_HOPPER: Final = {"float32": 67.0, "tf32": 494.7, "bfloat16": 989.4, "float16": 989.4, "float64": 34.0} | {
    "float8_e4m3fn": 1978.9,
    "float8_e5m2": 1978.9,
}
# Dense rates in TFLOP/s.
_TFLOPS: Final[Mapping[str, Mapping[str, float]]] = {
    "rtx3090": {"float32": 35.6, "tf32": 35.6, "bfloat16": 71.0, "float16": 71.0, "float64": 0.556},
    "rtx4090": {"float32": 82.6, "tf32": 82.6, "bfloat16": 165.2, "float16": 165.2, "float64": 1.29},
    "a100-40g": _A100,
    "a100-80g": _A100,
    "h100": _HOPPER,
    "h200": _HOPPER,
    "l4": {"float32": 30.3, "tf32": 60.0, "bfloat16": 121.0, "float16": 121.0, "float64": 0.47},
    "t4": {"float32": 8.1, "float16": 65.0, "float64": 0.253},
}
# Name, memory in GiB, printed bandwidth in GB/s, generation of PCIe, the source.
_ROWS: Final = (
    ("rtx3090", 24, 936, 4, "GA102 GPU architecture whitepaper, GeForce RTX 3090, dense rates"),
    ("rtx4090", 24, 1008, 4, "Ada GPU architecture whitepaper, GeForce RTX 4090, dense rates"),
    ("a100-40g", 40, 1555, 4, "A100 tensor core GPU data sheet, 40 GB, dense rates"),
    ("a100-80g", 80, 2039, 4, "A100 tensor core GPU data sheet, 80 GB SXM, dense rates"),
    ("h100", 80, 3350, 5, "H100 tensor core GPU data sheet and Hopper whitepaper, 80 GB SXM5, dense rates"),
    ("h200", 141, 4800, 5, "H200 tensor core GPU data sheet, 141 GB SXM, dense rates"),
    ("l4", 24, 300, 4, "L4 tensor core GPU data sheet, dense rates (half of the printed sparse ones)"),
    ("t4", 16, 320, 3, "T4 tensor core GPU data sheet"),
)
_ECC_IN_MEMORY: Final = ("l4", "t4")
# Of NVIDIA's table of GPUs (developer.nvidia.com/cuda-gpus): which kernels a library has for a card.
_COMPUTE_CAPABILITY: Final[Mapping[str, tuple[int, int]]] = {
    "rtx3090": (8, 6),
    "rtx4090": (8, 9),
    "a100-40g": (8, 0),
    "a100-80g": (8, 0),
    "h100": (9, 0),
    "h200": (9, 0),
    "l4": (8, 9),
    "t4": (7, 5),
}


def cuda_device(
    name: str,
    capacity_bytes: int,
    *,
    bandwidth: float,
    flops_per_s: dict[str, float],
    launch_s: float,
    links: tuple[Link, ...],
    source: str,
    reserved_bytes: int = _CONTEXT_BYTES,
) -> Device:
    """A card of so many bytes, bytes per second and operations per second, with the utilisation that all cards take here."""
    return Device(
        name=name,
        kind="cuda",
        spaces=(MemorySpace("device", capacity_bytes, bandwidth, _CUDA_ALIGNMENT_BYTES),),
        flops_per_s=flops_per_s,
        launch_s=launch_s,
        half_flops=flops_per_s["float32"] * _HALF_S,
        half_bytes=bandwidth * _HALF_S,
        links=links,
        source=source,
        reserved_bytes=reserved_bytes,
        fall=_FALL,
    )


def _cuda(name: str, gib: int, gigabytes_per_s: float, pcie: int, source: str) -> Device:
    capacity_bytes = gib * _GIB
    ends = ("device", HOST_SPACE), (HOST_SPACE, "device")
    return cuda_device(
        name,
        capacity_bytes,
        bandwidth=gigabytes_per_s * _GIGA,
        flops_per_s={dtype: rate * _TERA for dtype, rate in _TFLOPS[name].items()},
        launch_s=_LAUNCH_S,
        links=tuple(Link(*way, _PCIE_X16_BYTES_PER_S[pcie], _COPY_LATENCY_S) for way in ends),
        source=f"NVIDIA {source}; not yet checked against it",
        reserved_bytes=_CONTEXT_BYTES + (capacity_bytes // 16 if name in _ECC_IN_MEMORY else 0),
    )


PRESETS: Final[dict[str, Device]] = {row[0]: _cuda(*row) for row in _ROWS}
"""By name; `tests/cost/test_preset_conformance.py` holds each."""


def get_device(name: str) -> Device:
    """The preset of that name, in any letter case."""
    device = PRESETS.get(name.lower())
    if device is None:
        close = difflib.get_close_matches(name.lower(), PRESETS, n=2, cutoff=0.4)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise UsageError(
            f"there is no device named {name!r}",
            next_step=f"{hint}the known devices are {', '.join(PRESETS)}",
        )
    return device


def preset_of_card(name: str, capacity_bytes: int) -> Device | None:
    """The preset of a card by what its driver calls it, such as `NVIDIA H100 80GB HBM3`, of the nearest capacity; None without one."""
    words = re.split(r"[^a-z0-9]+", name.lower().replace("rtx ", "rtx"))
    found = [preset for preset in PRESETS.values() if preset.name.partition("-")[0] in words]
    return min(found, key=lambda preset: abs(preset.main_space.capacity_bytes - capacity_bytes), default=None)


def cublas_workspace_bytes(device: Device) -> int:
    """What cuBLAS takes from PyTorch's allocator at the first products, and keeps."""
    return sum(library_blocks(compute_capability(device)[0]))


def compute_capability(device: Device) -> tuple[int, int]:
    """Major and minor number of a preset's compute capability."""
    return _COMPUTE_CAPABILITY[device.name]
