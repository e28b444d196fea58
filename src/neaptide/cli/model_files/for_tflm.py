"""`neaptide plan model.tflite`: a file for TensorFlow Lite Micro, and the arena that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from neaptide.cli.command import Request
from neaptide.cli.model_files.commands import parse_memories
from neaptide.cli.model_files.sources import OF_STEPS, place_of_model, tflite_of
from neaptide.cli.process import exit_codes
from neaptide.cli.process.interrupts import asking_before_aborting
from neaptide.errors import UsageError
from neaptide.report.document import Document, Table, document
from neaptide.units import format_bytes

TFLM_REFERENCE: Final = "tflm-reference"
"""The interpreter with its reference kernels, of which it is known that element-wise results may lie on operands."""


def plan_for_tflm(request: Request) -> int:
    """Plans, writes the model and a header where `-o` says, and says whether they fit the memory."""
    from neaptide.lower.tflite.files import write_planned
    from neaptide.lower.tflite.plan import plan_tflm

    memory_bytes = _one_memory({} if request.model.memory is None else parse_memories(request.model.memory))
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


def _one_memory(memories: Mapping[str, int]) -> int | None:
    """The bytes of the only memory; None where none was named."""
    if len(memories) > 1:
        raise UsageError(
            "TensorFlow Lite Micro has one arena",
            why=f"--memory names {', '.join(memories)}, and offsets in the file count from the start of one",
            next_step="name the memory that the arena lies in: --memory 256KiB",
        )
    return next(iter(memories.values()), None)


def _document(found: Mapping[str, Any]) -> Document:
    rows = (
        ("tensors and scratch", "baseline_arena_bytes", "arena_bytes"),
        ("variables", "variable_bytes", "variable_bytes"),
        ("interpreter, estimated from above", "interpreter_bytes", "interpreter_bytes"),
    )
    files, memory, missing = found["files"], found["memory_bytes"], found["missing_bytes"]
    proof = (
        "No order of its operators needs less."
        if found["arena_bytes"] == found["lower_bound_bytes"]
        else f"No order of its operators needs less than {_exact(found['lower_bound_bytes'])}."
    )
    return document(
        f"{found['name']} for TensorFlow Lite Micro",
        Table(
            ("in the arena", "of the file", "planned"),
            tuple((name, _exact(found[before]), _exact(found[after])) for name, before, after in rows),
        ),
        f"arena to declare: {_exact(found['total_bytes'])}. {proof}",
        None if found["is_changed"] else "The file stays as it is: no plan was found that needs less.",
        None
        if memory is None
        else f"It does not fit {_exact(memory)}: {_exact(missing)} are missing."
        if missing
        else f"It fits {_exact(memory)}.",
        f"written: {', '.join(files)}" if files else None,
    )


def _exact(nbytes: int) -> str:
    shown = format_bytes(nbytes)
    return shown if shown.endswith(" B") else f"{shown} ({nbytes} bytes)"
