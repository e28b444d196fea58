"""Plans of rewritten graphs: their baseline is what was captured, and their graph follows from it by replay."""

from __future__ import annotations

from dataclasses import replace

from neaptide.errors import PlanError, RewriteError
from neaptide.ir.edits.edit import Edited
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.plans import CapturedGraph, PlannedProgram, wrong_field
from neaptide.transform.rewrite import Rewrite, replay
from neaptide.transform.rules import RULES


def of_captured(
    program: PlannedProgram, captured: Graph, pricing: Pricing, rewrites: tuple[Rewrite, ...]
) -> PlannedProgram:
    """The entry of a plan for a rewritten graph, whose baseline is the program order of that graph, beside what was captured."""
    written, prices = baseline(pricing.problem(captured)), pricing.prices(captured)
    made = program.predictions
    return replace(
        program,
        captured=CapturedGraph(
            fingerprint(captured), len(captured.nodes), rewrites, made.baseline_seconds, prices.assumed
        ),
        predictions=replace(
            made,
            baseline_peak_bytes=written.peak_bytes,
            baseline_peak_with_workspace_bytes=written.peak_with_workspace_bytes,
            baseline_seconds=written.seconds,
        ),
    )


def replayed(program: PlannedProgram, captured: Graph, registry: OpRegistry) -> Edited:
    """The graph that a plan is for, made of the one that was captured. Each rewrite is checked by its rule.

    Raises:
        PlanMismatch: the plan was made for another captured graph.
        PlanError: a rewrite is not legal, or together they make another graph than the plan says; names the field.
    """
    program.check_fingerprint(fingerprint(captured))
    if program.captured is None:
        return Edited.unchanged(captured)
    if program.captured.node_count != len(captured.nodes):
        raise _wrong(program, "node_count", f"is {program.captured.node_count}, not {len(captured.nodes)}")
    try:
        edited = replay(captured, registry, program.rewrites, RULES)
    except RewriteError as error:
        raise _wrong(program, "rewrites", f"are not legal: {error.what}") from error
    if fingerprint(edited.graph) != program.fingerprint:
        raise _wrong(program, "rewrites", "make another graph than the one that the plan is for")
    return edited


def _wrong(program: PlannedProgram, field: str, why: str) -> PlanError:
    return wrong_field(f"{program.role}.captured.{field}", why)
