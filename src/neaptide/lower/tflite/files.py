"""The files of a plan for TensorFlow Lite Micro: the model, and a C header with the size of the arena."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from neaptide.files.writing import replacing, write_atomic
from neaptide.frontends.tflite.model import TfliteModel
from neaptide.frontends.tflite.to_graph import TfliteGraph
from neaptide.lower.tflite.plan import TflmPlan
from neaptide.lower.tflite.rewrite import rewritten
from neaptide.ops.tflite import ALIGNMENT

_NOT_IN_MACROS: Final = re.compile(r"[^A-Z0-9]+")


def planned_bytes(model: TfliteModel, plan: TflmPlan) -> bytes | memoryview:
    """The planned file; the file as it is where nothing better was found."""
    return model.data if plan.offsets is None else rewritten(model, plan.order, plan.offsets)


def write_planned(source: TfliteGraph, plan: TflmPlan, folder: Path, stem: str) -> tuple[Path, Path]:
    """Writes `STEM.tflite` and `STEM_arena.h` into a folder, each whole or not at all; the paths of both."""
    model, header = folder / f"{stem}.tflite", folder / f"{stem}_arena.h"
    content = planned_bytes(source.model, plan)
    with replacing(model) as draft:
        draft.write_bytes(content)
    write_atomic(header, header_text(source, plan, stem))
    return model, header


def header_text(source: TfliteGraph, plan: TflmPlan, stem: str) -> str:
    """A header for C and C++: sizes as macros, offsets of tensors as a comment."""
    name = _NOT_IN_MACROS.sub("_", stem.upper()).strip("_") or "MODEL"
    if name[0].isdigit():
        name = f"MODEL_{name}"
    sizes = (
        ("PLANNED_BYTES", plan.arena_bytes, "tensors and scratch of the reference kernels"),
        ("VARIABLE_BYTES", plan.variable_bytes, "tensors that keep their data from call to call"),
        (
            "INTERPRETER_BYTES",
            plan.interpreter_bytes,
            "estimate of the interpreter's own data, from above; compare it with arena_used_bytes()",
        ),
    )
    total = " + ".join(f"{name}_{macro}" for macro, _, _ in sizes)
    lines = [
        f"/* Memory of {stem}.tflite in TensorFlow Lite Micro. Kernels of vendors may request more scratch. */",
        f"#ifndef {name}_ARENA_H",
        f"#define {name}_ARENA_H",
        "",
        *(f"#define {name}_{macro} {nbytes} /* {words} */" for macro, nbytes, words in sizes),
        f"#define {name}_ARENA_ALIGNMENT {ALIGNMENT}",
        f"#define {name}_ARENA_BYTES ({total})",
        "",
        f"/* static uint8_t arena[{name}_ARENA_BYTES] __attribute__((aligned({ALIGNMENT}))); */",
        "",
        *_offset_lines(source, plan),
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def _offset_lines(source: TfliteGraph, plan: TflmPlan) -> list[str]:
    """Where each tensor lies, in a comment; what the file says is told without it."""
    if plan.offsets is None:
        return ["/* The interpreter places the tensors: it needs no more for the file as it is. */", ""]
    tensors = source.model.main.tensors
    rows = [
        f" * {offset:>8} {tensor.nbytes:>8}  {re.sub(r'[^ -~]', '?', tensor.name).replace('*/', '* /')}"
        for tensor, offset in zip(tensors, plan.offsets[: len(tensors)], strict=True)
        if offset >= 0
    ]
    return ["/*   offset    bytes  tensor", *rows, " */", ""]
