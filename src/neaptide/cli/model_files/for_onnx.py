"""`neaptide plan model.onnx`: a model file whose nodes run in the planned order, and what it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from neaptide.cli.command import Request
from neaptide.cli.model_files.commands import fits_and_files, one_memory
from neaptide.cli.model_files.sources import OF_STEPS, located, parse_sizes, place_of_model
from neaptide.cli.process import exit_codes
from neaptide.cli.process.interrupts import asking_before_aborting
from neaptide.errors import InfeasibleBudget
from neaptide.report.document import Document, Table, document
from neaptide.units import exact_bytes

if TYPE_CHECKING:
    from neaptide.onnx import OnnxPlan


def plan_for_onnx(request: Request) -> int:
    """Plans, writes the model where `-o` says, and says whether it is within the peak and fits the memory."""
    request.refuse_beside("a model file", *OF_STEPS)
    memory_bytes = one_memory(
        request,
        "ONNX Runtime",
        "name one size, or place the tensors yourself: neaptide layout model.onnx --memories FILE",
    )
    place = None if request.output is None else place_of_model(request.output, request.target)
    plan = _planned(request, memory_bytes)
    allowed = None if request.settings.peak is None else allowed_bytes(request.settings.peak, plan)
    content: dict[str, Any] = {
        **plan.to_json(),
        "name": request.target,
        "memory_bytes": memory_bytes,
        "missing_bytes": max(
            0,
            0 if allowed is None else plan.peak_bytes - allowed,
            0 if memory_bytes is None else plan.found.arena_bytes - memory_bytes,
        ),
        "files": [],
    }
    if place is not None:
        plan.save(place)
        content["files"] = [str(place)]
    request.without_files().deliver(content, lambda: _document(content), noun="plan")
    return exit_codes.OVER_BUDGET if content["missing_bytes"] else exit_codes.DONE


def _planned(request: Request, memory_bytes: int | None) -> OnnxPlan:
    """The plan that is asked for, or the best that was found."""
    peak = request.settings.peak or (memory_bytes if memory_bytes is not None else "min")
    found = plan_of(request, peak)
    if memory_bytes is not None and found.peak_bytes <= memory_bytes < found.found.arena_bytes:
        # The tensors do not pack that well: a lower footprint may.
        found = plan_of(request, "min")
    return found


def plan_of(request: Request, peak: str | int) -> OnnxPlan:
    """The plan of a model file within a peak, or the best that was found."""
    from neaptide import onnx
    from neaptide.planner.passes.plan_passes import LEARNED

    names = [name.strip() for name in (request.model.passes or LEARNED).split(",")]
    target: Literal["ort", "c"] | None = (
        "ort" if request.model.runtime == onnx.ORT else "c" if request.model.runtime == onnx.C else None
    )
    with asking_before_aborting() as interrupt, located(request.target):
        try:
            return onnx.plan(
                request.target,
                peak=peak,
                passes=names,
                target=target,
                fuse=request.model.fuse,
                dims=parse_sizes(request.model.dim),
                time_limit_s=request.limits.time_s,
                work_limit=request.limits.work,
                seed=request.limits.seed,
                interrupt=interrupt,
                progress=request.console.progress,
            )
        except InfeasibleBudget as error:
            if not isinstance(error.plan, onnx.OnnxPlan):
                raise
            return error.plan


def allowed_bytes(peak: str | int, plan: OnnxPlan) -> int | None:
    """The most bytes that a peak allows; None for the lowest that is found."""
    from neaptide.budget import Budget

    budget = Budget(peak=peak)
    return None if budget.is_min else budget.limit(plan.found.baseline_peak_bytes)


def _document(found: Mapping[str, Any]) -> Document:
    unknown = ", ".join(f"{count} {name}" for name, count in found["unknown_operators"].items())
    return document(
        f"{found['name']}: {found['operators']} operators",
        peaks_table(found),
        passes_table(found),
        f"No order of the planned operators needs less than {exact_bytes(found['lower_bound_bytes'])}.",
        f"arena: {exact_bytes(found['arena_bytes'])} hold every tensor but weights at an address of its own.",
        f"operators without a row, left where they are: {unknown}" if unknown else None,
        f"{found['note']}." if found["note"] else None,
        *fits_and_files(found),
    )


def peaks_table(found: Mapping[str, Any]) -> Table:
    """The footprint before and after."""
    rows = (
        ("of the file, in its order", "baseline_peak_bytes"),
        ("in the best order", "order_peak_bytes"),
        ("planned", "peak_bytes"),
    )
    return Table(("footprint", "bytes"), tuple((name, exact_bytes(found[key])) for name, key in rows))


def passes_table(found: Mapping[str, Any]) -> Table | None:
    """Each pass with its change, and what it enabled; None without passes."""
    rows = tuple(
        (
            step["name"],
            f"{step['change_bytes']:+}",
            ", ".join(dict.fromkeys(one["name"] for one in step["enabled"])),
        )
        for step in found["passes"]
    )
    return Table(("pass", "change in bytes", "enabled"), rows, left=frozenset({2})) if rows else None
