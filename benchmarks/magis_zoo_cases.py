"""One net of `magis_zoo.py`: whole-step micro-batches, and what searches find within a latency limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.budget import Budget
from neaptide.ir.edits.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.named_peers import peer
from neaptide.outcome import Limits, Stopwatch
from neaptide.planner.graphs.plan_graph import GraphAsk
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.choices import Choices
from neaptide.planner.variants.estimate import PartCosts
from neaptide.planner.variants.planning import VariantPrices
from neaptide.planner.variants.search import plan_variants
from neaptide_corpus.recorded_steps import RecordedStep, from_json
from neaptide_peers.magis.best_first import Wanted
from neaptide_peers.magis.carry_out import carry_out
from neaptide_peers.magis.footprint import Footprint, footprint
from neaptide_peers.magis.seconds import RecordedCost

Row = dict[str, Any]
NETS: Final = ("unet", "unet2p", "resnet50", "vit", "bert", "gpt_neo", "btlm")
LIMITS: Final = ("+5%", "+10%")
PARTS: Final = (2, 4, 8, 16, 32)
SEARCHES: Final = 2
"""Searches of a net within one limit."""
_PERCENT: Final = 100.0
_BATCH: Final = 0
"""The dim of what the step is called with that has the samples."""
_HALF: Final = ("gpt_neo", "btlm")

# Share of eager's peak and added time of the released search (commit a332abc) with the same analytic costs, the best of
# its runs of one to three minutes within the limit; no entry where no run was within it.
RELEASED: Final[Mapping[tuple[str, str], tuple[float, float]]] = MappingProxyType(
    {
        ("unet", "+5%"): (0.726, 0.050),
        ("unet", "+10%"): (0.708, 0.100),
        ("unet2p", "+5%"): (1.0, 0.0),
        ("unet2p", "+10%"): (1.0, 0.0),
        ("resnet50", "+10%"): (0.307, 0.093),
        ("vit", "+5%"): (0.332, 0.037),
        ("vit", "+10%"): (0.216, 0.086),
        ("bert", "+10%"): (0.190, 0.057),
    }
)
# Chen et al., ASPLOS 2024, figure 9: measured on an RTX 3090, the two language models with simulated baselines.
PAPER: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "unet": (0.50, 0.26),
        "unet2p": (0.26, 0.13),
        "resnet50": (0.64, 0.51),
        "vit": (0.61, 0.37),
        "bert": (0.70, 0.47),
        "gpt_neo": (0.64, 0.42),
        "btlm": (0.43, 0.26),
    }
)


@dataclass
class Case:
    """A net and what is known of it before any search."""

    name: str
    folder: Path

    @cached_property
    def step(self) -> RecordedStep:
        data = (self.folder / "magis_zoo" / f"{self.name}.json").read_bytes()
        return from_json(data, element_bytes=2 if self.name in _HALF else 4, name=self.name)

    @cached_property
    def cost(self) -> RecordedCost:
        return RecordedCost(self.step.registry)

    @cached_property
    def eager(self) -> Footprint:
        return footprint(self.step.graph, Schedule.program_order(self.step.graph), self.cost)

    def checked(self, graph: Graph, schedule: Schedule) -> Row:
        """Shares of eager's peak by both conventions, and the time that is added."""
        simulated = footprint(graph, schedule, self.cost)
        generated = footprint(graph, schedule, self.cost, holds_pieces=False)
        return {
            "peak_share": simulated.peak_bytes / self.eager.peak_bytes,
            "generated_peak_share": generated.peak_bytes / self.eager.peak_bytes,
            "overhead": simulated.seconds / self.eager.seconds - 1.0,
        }


def micro_batches(case: Case) -> list[Row]:
    """The whole step in parts along the batch, each part in program order."""
    choices = Choices(case.step.registry, lambda _: None)
    found = choices.after(choices.begun(case.step.graph))
    steps = (choice for choice in found if choice.regions[0].kind == "step")
    whole = next(choice for choice in steps if choice.regions[0].origin[1] == _BATCH)
    rows = []
    for parts in PARTS:
        variant = choices.taken(whole, parts) if parts <= whole.length else None
        if variant is not None:
            graph = variant.graph
            rows.append({"parts": parts, **case.checked(graph, Schedule.program_order(graph))})
    return rows


def ours(case: Case, limit: str, limits: Limits, wholes: Sequence[Row]) -> Row:
    """The outer search over regions in parts, led by prices; orders and recomputation inside and around them."""
    pricing = Pricing(case.cost, case.step.registry)
    allowed = baseline(pricing.problem(case.step.graph)).peak_with_workspace_bytes

    def asked(_: Edited) -> GraphAsk:
        return GraphAsk(Budget("min", latency=limit), limits=limits, workers=1, budget_bytes=allowed)

    found = plan_variants(
        case.step.graph,
        asked,
        VariantPrices(pricing, lambda _: pricing, PartCosts(added_byte_seconds=0.0)),
        Choices(case.step.registry, lambda _: None),
    )
    # Whole-step micro-batching is a point of the same space. The search lets go of a piece when it is merged, the simulator
    # does not, so where weights are most of the bytes a whole step in program order may be lower.
    points = [
        {"label": f"forward and backward in {row['parts']} parts, program order", **row}
        for row in wholes
        if row["overhead"] <= added(limit)
    ]
    made = {"label": found.label, **case.checked(found.variant.graph, found.found.schedule)}
    chosen = min([made, *points], key=lambda row: row["peak_share"])
    return {**chosen, "searched": made, "tried": [row.label for row in found.tried]}


def magis(case: Case, limit: str, limits: Limits) -> Row:
    """MAGIS's search, carried out as a graph with loops and checked: F-tree alone, then all moves in the time that is left."""
    longest_s = case.eager.seconds * (1.0 + added(limit))
    solve = peer("magis", "search").solve
    wanted, watch = Wanted(longest_s=longest_s), Stopwatch()
    parts = solve(case.step, wanted, limits, parts_only=True)
    whole = solve(case.step, wanted, limits.after(watch.seconds(), parts.work))
    found = min(parts.require(), whole.require(), key=lambda plan: plan.peak_bytes)
    made = carry_out(case.step, found.tree, found.state)
    check_schedule(made.graph, made.schedule, case.step.registry)
    regions = [(len(found.tree.regions[index].members), parts) for index, parts in found.state.parts]
    return {
        "label": ", ".join(f"{count} operations in {parts} parts" for count, parts in regions)
        or "nothing in parts",
        "recomputations": len(found.state.again),
        "stays_on_the_host": len(found.state.away),
        "states": parts.require().seen + whole.require().seen,
        **case.checked(made.graph, made.schedule),
    }


def added(limit: str) -> float:
    """The added time that a limit allows, as a share: `+5%` is 0.05."""
    return float(limit.strip("+%")) / _PERCENT


def solve(name: str, folder: Path, time_limit_s: float | None, work: int | None) -> Row:
    """All rows of a net."""
    case = Case(name, folder)
    found: Row = {
        "net": name,
        "nodes": len(case.step.graph.nodes),
        "peak_bytes": case.eager.peak_bytes,
        "seconds": case.eager.seconds,
        "micro_batch": micro_batches(case),
        "ours": {},
        "magis": {},
    }
    limits = Limits(time_s=time_limit_s, work=work)
    for limit in LIMITS:
        found["ours"][limit] = _timed(lambda at=limit: ours(case, at, limits, found["micro_batch"]))
        found["magis"][limit] = _timed(lambda at=limit: magis(case, at, limits))
    return found


def _timed(search: Callable[[], Row]) -> Row:
    wall, cpu = time.perf_counter(), time.process_time()
    made = search()
    return made | {
        "wall_seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
    }
