"""What a preset says that parts cost, beside what was measured: `python benchmarks/preset_utilisation.py --instances FOLDER`.

The measured figures are those of MAGIS (Chen et al., ASPLOS 2024, figures of section 6) on an RTX 3090: whole steps in 2 to
32 parts take so much longer. Which number of parts a published point belongs to is our reading of its peak. The recorded
graphs in `FOLDER/magis_zoo` say how long each operation takes by the roofline alone; each runs in parts here, under the
preset `rtx3090`, which was fitted to these figures, and under the same preset without its loss of small calls. Prints and
records both.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from bench_record import recorded, save, table
from neaptide.cost.devices import Device
from neaptide.cost.model import roofline_seconds
from neaptide.cost.presets import get_device

# Loss of time by number of parts, as published.
PUBLISHED: Final[Mapping[str, Mapping[int, float]]] = {
    "unet": {2: 0.03, 4: 0.06, 8: 0.13, 16: 0.21, 32: 0.30},
    "unet2p": {2: 0.05, 4: 0.10},
    "resnet50": {2: 0.07, 4: 0.13, 8: 0.22},
    "vit": {2: 0.05, 4: 0.10, 8: 0.14},
    "bert": {2: 0.08, 4: 0.15, 8: 0.21},
    "gpt_neo": {4: 0.10, 8: 0.25},
    "btlm": {8: 0.10},
}
# The latencies of the recorded graphs have this much for each call.
_RECORDED_CALL_S: Final = 5e-6


def works(path: Path) -> list[float]:
    """Seconds of each operation of a recorded graph at the peak of the roofline; views are left out."""
    nodes = json.loads(path.read_text(encoding="utf-8"))
    found = [node["latency_ms"] / 1e3 - _RECORDED_CALL_S for node in nodes if not node["is_weight"]]
    return [work for work in found if work > 0]


def loss(device: Device, operations: Sequence[float], parts: int) -> float:
    """Share of a step's time that running all of it in so many parts adds."""
    rate = device.rate_flops_per_s("float32")

    def taken(number: int) -> float:
        return sum(
            number * roofline_seconds(device, flops=work * rate / number, bytes_moved=0.0, dtype="float32")
            for work in operations
        )

    return taken(parts) / taken(1) - 1.0


def rows(folder: Path) -> list[dict[str, Any]]:
    """One row for each published figure."""
    device = get_device("rtx3090")
    peak = replace(device, half_flops=0.0, half_bytes=0.0)
    found = []
    for name, figures in PUBLISHED.items():
        operations = works(folder / "magis_zoo" / f"{name}.json")
        for parts, published in figures.items():
            found.append(
                {
                    "net": name,
                    "parts": parts,
                    "published": published,
                    "without_loss_of_small_calls": loss(peak, operations, parts),
                    "preset": loss(device, operations, parts),
                }
            )
    return found


def off_by(found: Sequence[Mapping[str, Any]], column: str) -> float:
    """Root of the mean square of the difference to what was published."""
    return math.sqrt(sum((row[column] - row["published"]) ** 2 for row in found) / len(found))


def main() -> None:
    """Print and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--instances", type=Path, required=True, help="folder with magis_zoo/*.json")
    found = rows(parser.parse_args().instances)
    cells = [
        [
            row["net"],
            str(row["parts"]),
            *(f"{row[c]:.3f}" for c in ("published", "without_loss_of_small_calls", "preset")),
        ]
        for row in found
    ]
    print(table(["net", "parts", "published", "roofline", "preset"], cells))
    columns = {"roofline": "without_loss_of_small_calls", "preset": "preset"}
    misses = (f"{name} {100 * off_by(found, column):.1f}" for name, column in columns.items())
    print(f"off by, in points (root of mean square): {', '.join(misses)}")
    save("preset_utilisation", recorded(found, seed=0, repeats=1))


if __name__ == "__main__":
    main()
