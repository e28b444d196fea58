"""Recomputation, parts and offloads, two and all three together: `python benchmarks/offload_coordinated.py [--keep]`.

The seven nets of MAGIS's evaluation, as they are in the zoo, at their published size on the meta device. Each is planned for the
preset `rtx3090`, for the lowest peak within some more time than program order takes. Columns are shares of the peak of
program order:

* recompute + parts: `numerics="close"`, nothing on the host;
* recompute + offload: `numerics="bitwise"`, room on the host;
* all three: `numerics="close"`, room on the host.

Parts and offload without recomputation cannot be asked for: whatever plans a graph may recompute. Nothing is run: peaks and times
are predictions. Each search has the same limit of work, so its plan is the same on every machine. Each net runs in a process
of its own on one thread, and its row is kept as soon as it is there. `quote_results.py` puts the table into the page.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench_record import GIB, RESULTS, recorded, save, say, table
from model_rows import measured_rows
from neaptide import zoo

RESULT: Final = "offload_coordinated"
SEED: Final = 0
DEVICE: Final = "rtx3090"
NETS: Final = ("unet", "unetpp", "resnet50", "vit", "bert", "gptneo", "btlm")
SIZE: Final = "paper"
LATENCY: Final = "+10%"
HOST: Final = "64GiB"
WORK: Final = 4000
ALL_THREE: Final = "all three"
WAYS: Final[Mapping[str, tuple[str, str | None]]] = {
    "recompute + parts": ("close", None),
    "recompute + offload": ("bitwise", HOST),
    ALL_THREE: ("close", HOST),
}
COLUMNS: Final = (
    "net",
    "operations",
    "program order (GiB)",
    *WAYS,
    "host (GiB)",
    "on or below both",
    "planning (s)",
)
PART_S: Final = 4 * 3600.0
# What is equal: a thousandth of the peak of program order.
_EQUAL: Final = 1e-3

Row = dict[str, Any]


def planned(spec: str, work: int) -> Row:
    """One net, each way."""
    from neaptide.ask import Ask
    from neaptide.budget import Budget
    from neaptide.frontends.torch_step import capture_step
    from neaptide.outcome import Limits
    from neaptide.policy.prepared_step import PreparedStep

    step, batch = zoo.factory(spec, device="meta")()
    prepared = PreparedStep(capture_step(step, (batch,), name=spec), device=DEVICE)
    before = prepared.as_written()
    ways = {}
    for way, (numerics, host) in WAYS.items():
        say(f"{spec}: {way}")
        began = time.process_time()
        budget = Budget(None, latency=LATENCY, host=host)
        limits = Limits(work=work, seed=SEED)
        options = Ask(budget, limits=limits, numerics=numerics, workers=1)
        allowed = prepared.allowed(options, 0, None)
        program, _ = prepared.plan_program(0, options, allowed)
        made = program.predictions
        ways[way] = {
            "peak_with_workspace_bytes": made.peak_with_workspace_bytes,
            "seconds": made.seconds,
            "exposed_s": made.exposed_seconds,
            "host_bytes": made.host_bytes,
            "offloads": len(program.offloads),
            "recomputed": len(program.moves.recomputations),
            "loops": len(program.bodies),
            "rewrites": [rewrite.rule for rewrite in program.rewrites],
            "plan_cpu_s": round(time.process_time() - began, 1),
        }
    return {
        "operations": len(prepared.captured.steady.graph.nodes),
        "baseline_bytes": before.peak_with_workspace_bytes,
        "baseline_seconds": before.seconds,
        "ways": ways,
    }


def share(row: Mapping[str, Any], way: str) -> float:
    """Of the peak of program order."""
    peak: int = row["ways"][way]["peak_with_workspace_bytes"]
    return peak / int(row["baseline_bytes"])


def lines(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Cells of the table, a net a line; nets that failed have none."""
    return [
        [
            row["spec"].partition("@")[0],
            f"{row['operations']:,}",
            f"{row['baseline_bytes'] / GIB:.1f}",
            *(f"{share(row, way):.3f}" for way in WAYS),
            f"{row['ways'][ALL_THREE]['host_bytes'] / GIB:.1f}",
            verdict(row),
            " / ".join(f"{row['ways'][way]['plan_cpu_s']:.0f}" for way in WAYS),
        ]
        for row in rows
        if "failure" not in row
    ]


def verdict(row: Mapping[str, Any]) -> str:
    """How all three together stand beside the lower of both pairs."""
    both = min(share(row, way) for way in WAYS if way != ALL_THREE)
    if share(row, ALL_THREE) < both - _EQUAL:
        return "below"
    return "on" if share(row, ALL_THREE) <= both + _EQUAL else "above"


def said(result: Mapping[str, Any]) -> str:
    """What stands below the table, beside the machine."""
    made = {row["spec"].partition("@")[0] for row in result["rows"] if "ways" in row}
    missing = [net for net in NETS if net not in made]
    work = f"Each search has {result['settings']['work']:,} units of work."
    return f"{work} Not run: {', '.join(missing)}." if missing else work


def main() -> int:
    """All nets, or one here."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("nets", nargs="*", help=f"of {', '.join(NETS)} (default: all)")
    parser.add_argument("--size", default=SIZE, help="of all nets (default: %(default)s)")
    parser.add_argument("--work", type=int, default=WORK, help="units of each search (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="take rows that an earlier run has kept")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--one", metavar="SPEC", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(planned(asked.one, asked.work)))
        return 0
    rows: list[Row] = []
    for net in asked.nets or NETS:
        rows += measured_rows(
            "offload_coordinated.py",
            [net],
            asked.output / "parts",
            size=asked.size,
            options=(f"--work={asked.work}",),
            keep=asked.keep,
            timeout_s=PART_S,
            prefix=f"offload-coordinated-{asked.work}-",
        )
        settings = {"device": DEVICE, "latency": LATENCY, "host": HOST, "work": asked.work}
        # What is there so far is a result already: a net may take hours.
        save(RESULT, recorded(rows, seed=SEED, repeats=1, **settings), asked.output)
    print(table(COLUMNS, lines(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
