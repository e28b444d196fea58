"""Models as C programs: `python benchmarks/onnx_c.py [NAME ...]`.

Each model is written in file order and as planned, compiled without a warning, run with AddressSanitizer over an arena
whose dead bytes are poisoned, and compared with ONNX Runtime. The arena that is said is the `.bss` of the object file.
Then the bars: the network of two convolutions without and with windows, a step of training, MobileNetV2 in integers.
With `--keep` each row goes to `benchmarks/results/onnx_c.json` as soon as it is there.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime

import neaptide.onnx
from bench_record import say, table
from neaptide.errors import NeaptideError
from neaptide.frontends.onnx.reader import read_model
from neaptide.lower.c.of_model import write_c
from neaptide.lower.c.write import CProgram, CSettings
from neaptide.lower.c.write import save as save_program
from neaptide_corpus.onnx_models.feeds import random_feeds
from onnx_c_cases import BARS
from onnx_files_of_corpus import KIB, LIMITS, file_of, keep_rows, named

Row = dict[str, Any]
MODELS: Final = (
    *("two_convolutions", "mobilenet_v2", "unet", "densenet", "convnext", "vit", "bert", "gpt2"),
    *("shufflenet", "inception", "temporal_convolutions", "super_resolution", "darts", "randwire_small"),
)
TOLERANCE: Final = 1e-5
_WARNINGS: Final = ("-std=c11", "-Wall", "-Wextra", "-Werror")
_CHECKED: Final = ("-O1", "-DNEAPTIDE_POISON", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def measure(name: str) -> Row:
    """One model: its arena in file order and as planned, and the error of both programs."""
    model = onnx.load(file_of(name))
    row: Row = {"case": name, "nodes": len(model.graph.node)}
    plan = neaptide.onnx.plan(model, **LIMITS)
    for kind, found in (("file", None), ("planned", plan.found)):
        order, graph = (None, None) if found is None else (found.order, found.graph)
        source = read_model(model) if found is None else plan.source
        row[kind] = checked(model, lambda s, a=source, g=graph, o=order: write_c(a, "m", s, graph=g, order=o))
    row["plan_peak_bytes"] = plan.peak_bytes
    return row


def checked(model: onnx.ModelProto, write: Any) -> Row:
    """Sizes of a program, and its largest error against ONNX Runtime with inputs of a fixed seed.

    The program that runs has red zones; the one whose size is read has none.
    """
    program: CProgram = write(CSettings())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bss = bss_bytes(folder, program)
        errors = compared(folder, write(CSettings(red_zone_bytes=32)), model)
    return {
        "arena_bytes": sum(program.arena_bytes),
        "bss_bytes": bss,
        "constant_bytes": program.constant_bytes,
        "variable_bytes": program.variable_bytes,
        "source_bytes": len(program.source),
        "error": max(errors),
        "is_equal": max(errors) <= TOLERANCE,
    }


def bss_bytes(folder: Path, program: CProgram) -> int:
    """Bytes of the zeroed data of the object file."""
    save_program(program, folder, "m")
    compile_in(folder, "-O1", "-c", "m.c", "-o", "m.o")
    told = subprocess.run(["size", "m.o"], cwd=folder, check=True, capture_output=True, text=True).stdout
    return int(told.splitlines()[1].split()[2])


def compile_in(folder: Path, *arguments: str) -> None:
    """Run the compiler. Raises `RuntimeError` with what it complains of."""
    done = subprocess.run(
        ["cc", *_WARNINGS, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[:2000])


def compared(folder: Path, program: CProgram, model: onnx.ModelProto) -> list[float]:
    """Largest difference of each output, over one more than its magnitude."""
    feeds = random_feeds(model)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    answers = session.run(names, feeds)
    lines = ['  in = fopen("in", "rb");']
    for title, array in feeds.items():
        lines.append(f"  if (fread(m_in_{_c(title)}(), 1, {array.nbytes}, in) != {array.nbytes}) return 1;")
    lines += ["  fclose(in);", "  m_run();"]
    lines += [
        f"  fwrite(m_out_{_c(title)}(), 1, {array.nbytes}, out);"
        for title, array in zip(names, answers, strict=True)
    ]
    body = "\n".join(lines)
    main = f'#include <stdio.h>\n#include "m.h"\nint main(void) {{\n  FILE *in, *out = fopen("out", "wb");\n{body}\n'
    (folder / "main.c").write_text(main + "  fclose(out);\n  return 0;\n}\n")
    (folder / "in").write_bytes(b"".join(np.ascontiguousarray(array).tobytes() for array in feeds.values()))
    save_program(program, folder, "m")
    compile_in(folder, *_CHECKED, "m.c", "main.c", "-lm", "-o", "program")
    done = subprocess.run(["./program"], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[:2000])
    return list(_errors((folder / "out").read_bytes(), answers))


def _c(title: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", title).strip("_") or "tensor"


def _errors(data: bytes, answers: list[Any]) -> Any:
    at = 0
    for array in answers:
        found = np.frombuffer(data, array.dtype, array.size, at).reshape(array.shape).astype(np.float64)
        wanted = np.asarray(array, np.float64)
        at += array.nbytes
        yield float(np.max(np.abs(found - wanted) / (1 + np.abs(wanted)), initial=0.0))


def bar(name: str) -> Row:
    """A bar: sizes and error of a program whose passes, or order, are chosen by hand."""
    case = BARS[name]()
    row: Row = {"case": name, "most_bytes": case.most_bytes, "work": case.work, "passes": "by hand"}
    row |= checked(case.model, case.write)
    row["counted_bytes"] = row["arena_bytes"] + row["variable_bytes"]
    row["is_met"] = (
        row["counted_bytes"] <= case.most_bytes and row["is_equal"] and case.work <= case.most_work
    )
    return row


def show(rows: list[Row]) -> str:
    """The tables, in KiB."""
    models = [
        [row["case"], *(f"{row[kind]['arena_bytes'] / KIB:.1f}" for kind in ("file", "planned")),
         f"{row['plan_peak_bytes'] / KIB:.1f}", f"{max(row['file']['error'], row['planned']['error']):.1e}",
         "yes" if all(row[k]["arena_bytes"] == row[k]["bss_bytes"] for k in ("file", "planned")) else "no"]
        for row in rows if "file" in row
    ]  # fmt: skip
    bars = [
        [row["case"], f"{row['counted_bytes'] / KIB:.1f}", f"{row['most_bytes'] / KIB:.0f}", f"{row['work']:.3f}",
         f"{row['error']:.1e}", "met" if row["is_met"] else "missed"]
        for row in rows if "most_bytes" in row
    ]  # fmt: skip
    parts = []
    if models:
        parts.append(table(("model", "file", "planned", "footprint", "error", ".bss is the arena"), models))
    if bars:
        parts.append(table(("bar", "KiB", "at most", "work", "error", ""), bars))
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="models or bars, or parts of their names")
    parser.add_argument("--keep", action="store_true", help="write the rows into the result")
    asked = parser.parse_args()
    rows: list[Row] = []
    actions: Mapping[str, Any] = {**dict.fromkeys(MODELS, measure), **dict.fromkeys(BARS, bar)}
    for name in named(asked.names, tuple(actions)):
        try:
            rows.append(actions[name](name))
            say(show(rows[-1:]).splitlines()[-1])
        except (NeaptideError, RuntimeError) as error:
            rows.append({"case": name, "failure": " ".join(str(error).split())[:300]})
            say(f"{name} failed: {rows[-1]['failure']}")
        if asked.keep:
            keep_rows("onnx_c", rows[-1:], tuple(actions), {})
    print(show(rows))


if __name__ == "__main__":
    main()
