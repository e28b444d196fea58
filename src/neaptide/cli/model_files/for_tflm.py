"""`neaptide plan model.tflite`: a file for TensorFlow Lite Micro, and the arena that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from neaptide.cli.command import Request
from neaptide.cli.model_files.commands import fits_and_files, one_memory
from neaptide.cli.model_files.sources import OF_STEPS, place_of_model, tflite_of
from neaptide.cli.process import exit_codes
from neaptide.cli.process.interrupts import asking_before_aborting
from neaptide.report.document import Document, Table, document
from neaptide.units import exact_bytes

TFLM_REFERENCE: Final = "tflm-reference"
"""The interpreter with its reference kernels, of which it is known that element-wise results may lie on operands."""


def plan_for_tflm(request: Request) -> int:
    """Plans, writes the model and a header where `-o` says, and says whether they fit the memory."""
    from neaptide.lower.tflite.files import write_planned
    from neaptide.lower.tflite.plan import plan_tflm

    memory_bytes = one_memory(
        request, "TensorFlow Lite Micro", "name the memory that the arena lies in: --memory 256KiB"
    )
    made = request.output
    place = None if made is None else place_of_model(made, request.target)
    request.refuse_beside("a model file", "--peak", *OF_STEPS)
    source = tflite_of(request, on_operands=request.model.runtime == TFLM_REFERENCE)
    with asking_before_aborting() as interrupt:
        plan = plan_tflm(source, request.limits, interrupt, request.console.progress)
    files: tuple[Path, ...] = ()
    if place is not None:
        files = write_planned(source, plan, place.parent, place.stem)
    missing = 0 if memory_bytes is None else max(plan.total_bytes - memory_bytes, 0)
    content = {
        "name": request.target,
        "target": request.model.runtime or "tflm",
        "baseline_peak_bytes": plan.baseline_peak_bytes,
        "order_peak_bytes": plan.peak_bytes,
        "peak_bytes": plan.peak_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "baseline_arena_bytes": plan.baseline_arena_bytes,
        "arena_bytes": plan.arena_bytes,
        "variable_bytes": plan.variable_bytes,
        "interpreter_bytes": plan.interpreter_bytes,
        "total_bytes": plan.total_bytes,
        "memory_bytes": memory_bytes,
        "missing_bytes": missing,
        "is_changed": plan.offsets is not None,
        "passes": [],
        "files": [str(path) for path in files],
    }
    request.without_files().deliver(content, lambda: _document(content), noun="plan")
    return exit_codes.OVER_BUDGET if missing else exit_codes.DONE


def _document(found: Mapping[str, Any]) -> Document:
    rows = (
        ("tensors and scratch", "baseline_arena_bytes", "arena_bytes"),
        ("variables", "variable_bytes", "variable_bytes"),
        ("interpreter, estimated from above", "interpreter_bytes", "interpreter_bytes"),
    )
    proof = (
        "No order of its operators needs less."
        if found["arena_bytes"] == found["lower_bound_bytes"]
        else f"No order of its operators needs less than {exact_bytes(found['lower_bound_bytes'])}."
    )
    return document(
        f"{found['name']} for TensorFlow Lite Micro",
        Table(
            ("in the arena", "of the file", "planned"),
            tuple(
                (name, exact_bytes(found[before]), exact_bytes(found[after])) for name, before, after in rows
            ),
        ),
        f"arena to declare: {exact_bytes(found['total_bytes'])}. {proof}",
        None if found["is_changed"] else "The file stays as it is: no plan was found that needs less.",
        *fits_and_files(found),
    )
