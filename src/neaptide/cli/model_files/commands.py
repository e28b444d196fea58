"""Commands on model files: the profile of one, and what plans it for a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neaptide.cli.command import Request
from neaptide.cli.model_files.sources import model_of
from neaptide.cli.process import exit_codes
from neaptide.errors import UsageError
from neaptide.ir.values import Kind
from neaptide.report.document import Document, Table, document
from neaptide.units import exact_bytes, format_bytes, parse_size

if TYPE_CHECKING:
    from neaptide.schedule.order.problem import OrderProblem

_SHOWN: Final = 10  # storages at the peak


def profile_model(request: Request) -> int:
    """Says what a model needs in the order of its file."""
    from neaptide.schedule.order.evaluate import evaluate_order

    model = model_of(request)
    graph, problem = model.graph, model.problem()
    profile = evaluate_order(problem, range(problem.op_count))
    at = profile.peak_position
    sizes = dict.fromkeys(Kind, 0)
    for storage in graph.storages:
        sizes[storage.kind] += storage.nbytes.constant_value() if storage.nbytes.is_constant else 0
    content = {
        "name": request.target,
        "operators": problem.op_count,
        "weight_bytes": sizes[Kind.PARAMETER],
        "variable_bytes": sizes[Kind.BUFFER],
        "peak_bytes": profile.peak_bytes,
        "peak_operator": None if at is None else problem.ops[at].name,
        "at_peak": [] if at is None else _at(problem, at),
    }
    request.deliver(content, lambda: _profile_document(content), noun="report")
    return exit_codes.DONE


def _at(problem: OrderProblem, position: int) -> list[dict[str, Any]]:
    """What is in memory while an operation of the file's order runs, the largest first."""
    last = max(problem.op_count - 1, 0)
    live = []
    for index, storage in enumerate(problem.storages):
        used = problem.accessors[index]
        start = 0 if problem.from_start[index] or not used else used[0]
        end = last if storage.resident or storage.output or not used else used[-1]
        if storage.nbytes and start <= position <= end:
            live.append({"name": storage.name, "bytes": storage.nbytes})
    if scratch := problem.ops[position].workspace:
        live.append({"name": "workspace", "bytes": scratch})
    return sorted(live, key=lambda one: -int(one["bytes"]))


def _profile_document(found: Mapping[str, Any]) -> Document:
    live = found["at_peak"]
    rows = tuple((one["name"], format_bytes(one["bytes"])) for one in live[:_SHOWN])
    return document(
        f"{found['name']}: {found['operators']} operators",
        f"peak: {format_bytes(found['peak_bytes'])} in the order of the file"
        + ("" if found["peak_operator"] is None else f", at {found['peak_operator']}")
        + f"; weights of {format_bytes(found['weight_bytes'])} are not counted.",
        Table(("in memory at the peak", "bytes"), rows) if rows else None,
        f"and {len(live) - _SHOWN} more" if len(live) > _SHOWN else None,
    )


def plan_model(request: Request) -> int:
    """Plans a model file for what runs it."""
    from neaptide.cli.model_files.for_c import plan_for_c
    from neaptide.cli.model_files.for_onnx import plan_for_onnx
    from neaptide.cli.model_files.for_tflm import TFLM_REFERENCE, plan_for_tflm

    targets: Mapping[tuple[str, str], Callable[[Request], int]] = {
        (".onnx", "ort"): plan_for_onnx,
        (".onnx", "c"): plan_for_c,
        (".tflite", "tflm"): plan_for_tflm,
        (".tflite", TFLM_REFERENCE): plan_for_tflm,
    }
    suffix = Path(request.target).suffix
    choices = [name for of, name in targets if of == suffix]
    runtime = request.model.runtime or (choices[0] if choices else "")
    if (suffix, runtime) not in targets:
        raise UsageError(
            f"{request.target} cannot be planned" + (f" for {runtime!r}" if runtime else ""),
            why=f"targets of {suffix} files: {', '.join(choices) or 'none'}",
            next_step=f"write --target {choices[0]}" if choices else "neaptide order orders it",
        )
    return targets[suffix, runtime](request)


def parse_memories(text: str) -> dict[str, int]:
    """Capacities in bytes by name: of `sram=256KiB,psram=4MiB`, or of one size, whose memory is called `memory`.

    >>> parse_memories("sram=256KiB,psram=4MiB")
    {'sram': 262144, 'psram': 4194304}
    """
    found: dict[str, int] = {}
    parts = text.split(",")
    for part in parts:
        name, equals, size = part.rpartition("=")
        name = name.strip() if equals else "memory"
        if not name or name in found:
            raise UsageError(
                f"--memory {text!r} cannot be meant",
                why=f"{name} is there twice" if name else "a memory has no name",
                next_step="write one size, or NAME=SIZE,NAME=SIZE with the fastest memory first",
            )
        found[name] = parse_size(size)
        if not found[name]:
            raise UsageError(
                f"--memory {text!r} leaves nothing",
                why=f"{name} has no bytes" if equals else "a model needs some bytes",
                next_step="give each memory its bytes, as in 256KiB, or leave it out",
            )
    return found


def one_memory(request: Request, runtime: str, next_step: str) -> int | None:
    """The bytes of the only memory that `--memory` names, for a runtime that has one; None where it names none."""
    memories = {} if request.model.memory is None else parse_memories(request.model.memory)
    if len(memories) > 1:
        raise UsageError(
            f"{runtime} has one memory", why=f"--memory names {', '.join(memories)}", next_step=next_step
        )
    return next(iter(memories.values()), None)


def fits_and_files(found: Mapping[str, Any], where: str = "") -> tuple[str | None, str | None]:
    """Whether a plan fits its memory or peak, where one was named, or what it lacks in one; which files were written."""
    memory, missing = found.get("memory_bytes"), found["missing_bytes"]
    within = "" if memory is None else f" {exact_bytes(memory)}"
    fits = f"It fits{within}." if memory is not None else None
    return (
        f"It does not fit{within}: {exact_bytes(missing)} are missing{where and f' in {where}'}."
        if missing
        else fits,
        f"written: {', '.join(found['files'])}" if found["files"] else None,
    )
