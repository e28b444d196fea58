"""What each rule that rewrites a graph brings, predicted: `python benchmarks/rule_gains.py [SPEC ...]`.

For each step and each rule by itself, and all of them: peak and seconds of program order as shares of those of the captured
program, and the least peak that recomputation finds within no more time than the captured program takes, and within a tenth
more. Steps are those of the zoo, of `fission_steps` and of `fused_dropouts`. Prices are those of a preset, and searches have a work limit, so that
the numbers depend on no machine. The result is `results/rule_gains.json`. With `--keep` the rows of all steps that are not named
stay as they were.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import fission_steps
import fused_dropouts
import neaptide.zoo
from bench_record import RESULTS, recorded, save, table
from neaptide.budget import Budget
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.ir.graph import Graph
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.graphs.plan_graph import GraphAsk, plan_graph
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.runtime.steps.capturing import capture
from neaptide.transform.rewrite import apply_rule
from neaptide.transform.rules import RULES

DEVICE: Final = "rtx3090"
WORK: Final = 500
LONGER: Final = (0.0, 0.1)
OWN_STEPS: Final = ("long_context", "encoder_decoder", "odd_convnext", "high_resolution")
STEPS: Final = (
    "unet@small",
    "unetpp@small",
    "resnet50@small",
    "unet2d@tiny,batch=64,image=32",
    "vit@tiny",
    "bert@tiny",
    "llama@tiny",
    "btlm@tiny,batch=64",
    "gptneo@tiny,bf16,batch=32",
    "fused_dropouts@small",
)
RULE_SETS: Final[tuple[tuple[str, ...], ...]] = (
    (),
    ("in_place",),
    ("redundant_copies",),
    ("accumulate_in_gemm",),
    ("concat_before_convolution",),
    ("split_dropout",),
    ("common_subexpressions",),
    ("concat_before_convolution", "redundant_copies", "accumulate_in_gemm", "in_place"),
)
_ALTERNATIVES: Final = "its places are alternatives: `fission_runs.py` and `coordinated.py` say what those bring that prices choose"
_FIRST: Final = "it makes room for another rule, and alone it wins nothing"
WITHOUT_ROW: Final[Mapping[str, str]] = {
    "fission": _ALTERNATIVES,
    "fission_by_shape": "its places are placed by hand, for the shapes that a graph is meant for",
    "split_convolution_backward": _FIRST,
    "rematerialisation": _ALTERNATIVES,
    "mean_to_sum": _FIRST,
    "windows": _ALTERNATIVES,
    "fusion": "a preset does not know what a compiled kernel takes: `fused_steps` measures it",
}
"""Rules that have no row, and why."""
COLUMNS: Final = (
    "step",
    "rules",
    "places",
    "peak",
    "seconds",
    *(f"peak at +{100 * x:.0f} %" for x in LONGER),
)


def captured(spec: str) -> Graph:
    """The steady program of a step."""
    name = spec.partition("@")[0]
    own = fused_dropouts if name == fused_dropouts.NAME else fission_steps if name in OWN_STEPS else None
    step, batch = (own or neaptide.zoo).factory(spec)()
    return capture(step, (batch,)).steady.graph


def rewritten(graph: Graph, rules: Sequence[str]) -> tuple[Graph, list[int]]:
    """A graph after all that some rules find, and in how many places each."""
    places = []
    for rule in rules:
        made = apply_rule(graph, registry(), RULES[rule])
        graph = made.edited.graph
        places.append(sum(len(rewrite.nodes) for rewrite in made.rewrites))
    return graph, places


def measure(spec: str) -> list[dict[str, Any]]:
    """A row for each set of rules whose first rule finds something in a step, and for all rules together."""
    graph = captured(spec)
    pricing = Pricing(EstimatedCost(get_device(DEVICE), registry()), registry())
    before = baseline(pricing.problem(graph))
    rows = []
    for rules in RULE_SETS:
        made, places = rewritten(graph, rules)
        found_first = any(places if rules == RULE_SETS[-1] else places[:1])
        if rules and not found_first:
            continue
        after = baseline(pricing.problem(made))
        whole = before.peak_with_workspace_bytes
        found = [least_peak(made, pricing, before.seconds * (1 + longer)) for longer in LONGER]
        rows.append(
            {
                "step": spec,
                "rules": list(rules),
                "places": sum(places),
                "peak": after.peak_with_workspace_bytes / whole,
                "seconds": after.seconds / before.seconds,
                "peak_within": [None if peak is None else peak / whole for peak in found],
            }
        )
    return rows


def least_peak(graph: Graph, pricing: Pricing, seconds: float) -> int | None:
    """Bytes of the lowest plan within a time; None where none was found."""
    asked = GraphAsk(Budget("min", latency=seconds), limits=Limits(None, WORK))
    made = plan_graph(graph, pricing, asked).program.predictions
    return made.peak_with_workspace_bytes if made.seconds <= seconds else None


def merged(rows: Sequence[dict[str, Any]], before: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """New rows beside those of other steps that were kept, in the order of `STEPS`; other steps come last."""
    steps = {row["step"] for row in rows}
    together = [*(row for row in before if row["step"] not in steps), *rows]
    places = {spec: place for place, spec in enumerate(STEPS)}
    return sorted(together, key=lambda row: places.get(row["step"], len(places)))


def cells(row: dict[str, Any]) -> list[str]:
    """A row as it is printed."""
    within = ("-" if found is None else f"{found:.3f}" for found in row["peak_within"])
    rules = " + ".join(row["rules"]) or "as it is"
    return [row["step"], rules, str(row["places"]), f"{row['peak']:.3f}", f"{row['seconds']:.3f}", *within]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", nargs="*", default=STEPS, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    parser.add_argument("--keep", action="store_true", help="keep the rows of steps that are not named")
    asked = parser.parse_args()
    rows = [row for spec in asked.steps for row in measure(spec)]
    if asked.keep:
        before = json.loads((RESULTS / "rule_gains.json").read_text(encoding="utf-8"))["rows"]
        rows = merged(rows, before)
    print(table(COLUMNS, [cells(row) for row in rows]))
    save("rule_gains", recorded(rows, seed=0, repeats=1, device=DEVICE, work=WORK), asked.output)


if __name__ == "__main__":
    main()
