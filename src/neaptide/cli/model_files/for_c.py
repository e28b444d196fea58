"""`neaptide plan model.onnx --target c`: one C file with a static arena, and its header."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neaptide.cli.command import Request
from neaptide.cli.model_files.commands import fits_and_files, parse_memories
from neaptide.cli.model_files.for_onnx import (
    allowed_bytes,
    passes_table,
    peaks_table,
    plan_of,
)
from neaptide.cli.model_files.sources import OF_STEPS, located
from neaptide.cli.process import exit_codes
from neaptide.errors import InfeasibleBudget, UsageError
from neaptide.report.document import Document, Table, document
from neaptide.units import exact_bytes, format_bytes

if TYPE_CHECKING:
    from neaptide.lower.c.write import CProgram
    from neaptide.onnx import OnnxPlan


def plan_for_c(request: Request) -> int:
    """Plans, writes the two files into the folder that `-o` names, and says whether the arena fits the memory."""
    request.refuse_beside("a model file", *OF_STEPS)
    memories = {} if request.model.memory is None else parse_memories(request.model.memory)
    if request.output is not None and request.output.suffix:
        raise UsageError(
            "a C program is two files", where=str(request.output), next_step="name a folder: -o out"
        )
    with located(request.target):
        plan, program, missing = _programmed(request, memories)
    allowed = None if request.settings.peak is None else allowed_bytes(request.settings.peak, plan)
    missing = max(missing, 0 if allowed is None else plan.peak_bytes - allowed)
    content: dict[str, Any] = {
        **plan.to_json(),
        "name": request.target,
        "target": "c",
        "memories": [
            {
                "name": name,
                "capacity_bytes": size,
                "arena_bytes": None if program is None else program.arena_bytes[k],
            }
            for k, (name, size) in enumerate(memories.items())
        ],
        "missing_bytes": missing,
        "files": [],
    }
    if program is not None:
        content |= {
            "arena_bytes": sum(program.arena_bytes),
            "constant_bytes": program.constant_bytes,
            "variable_bytes": program.variable_bytes,
        }
        if request.output is not None:
            from neaptide.lower.c.write import save

            content["files"] = [str(path) for path in save(program, request.output, _c_name(request.target))]
    request.without_files().deliver(content, lambda: _document(content), noun="plan")
    return exit_codes.OVER_BUDGET if missing else exit_codes.DONE


def _programmed(request: Request, memories: Mapping[str, int]) -> tuple[OnnxPlan, CProgram | None, int]:
    """A plan, its program, and how many bytes the memories lack. The lowest footprint is looked for where they need it."""
    enough = sum(memories.values()) if len(memories) == 1 else None
    peaks: list[str | int] = [request.settings.peak] if request.settings.peak else []
    peaks += [] if peaks else [enough, "min"] if enough else ["min"]
    missing, plan = 0, None
    for peak in peaks:
        if plan is None or plan.found.measurements == 0 or peak == "min":
            plan = plan_of(request, peak)
        try:
            return plan, plan.to_c(_c_name(request.target), _spaces(memories)), 0
        except InfeasibleBudget as error:
            missing = max(error.smallest_peak_bytes - sum(memories.values()), 1)
    assert plan is not None
    return plan, None, missing


def _spaces(memories: Mapping[str, int]) -> dict[str, int | None]:
    """The memories of a program; a single one needs no name in it."""
    return {("" if len(memories) == 1 else name): size for name, size in memories.items()}


def _c_name(target: str) -> str:
    """The name of the files and of what is in them, from that of the model."""
    name = re.sub(r"\W", "_", Path(target).stem, flags=re.ASCII) or "model"
    return f"model_{name}" if name[0].isdigit() else name


def _document(found: Mapping[str, Any]) -> Document:
    rows = tuple(
        (
            one["name"],
            format_bytes(one["capacity_bytes"]),
            "-" if one["arena_bytes"] is None else exact_bytes(one["arena_bytes"]),
        )
        for one in found["memories"]
    )
    return document(
        f"{found['name']}: {found['operators']} operators, as C",
        peaks_table(found),
        passes_table(found),
        Table(("memory", "size", "arena"), rows) if rows else None,
        f"No order of the planned operators needs less than {exact_bytes(found['lower_bound_bytes'])}."
        if found["lower_bound_bytes"] <= found["arena_bytes"]
        else None,
        f"arena: {exact_bytes(found['arena_bytes'])}"
        + (f"; constant weights: {exact_bytes(found['constant_bytes'])}" if "constant_bytes" in found else "")
        + (
            f"; weights that a run updates: {exact_bytes(found['variable_bytes'])}"
            if found.get("variable_bytes")
            else ""
        )
        + ".",
        *fits_and_files(found, rows[-1][0] if rows[1:] and rows[-1][-1] == "-" else ""),
    )
