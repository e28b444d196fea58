"""Models of ONNX as C programs for tests: written, compiled with checks of memory, run, and compared with ONNX Runtime."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from neaptide.frontends.onnx.reader import read_model
from neaptide.lower.c.of_model import write_c
from neaptide.lower.c.write import CProgram, CSettings, save

Array = np.ndarray[Any, Any]
WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Werror")
CHECKED = ("-O1", "-DNEAPTIDE_POISON", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
CHECKED_SETTINGS = CSettings(red_zone_bytes=32)


def feeds_of(model: onnx.ModelProto, seed: int = 0) -> dict[str, Array]:
    """Random inputs; whole numbers are small."""
    rng = np.random.default_rng(seed)
    weights = {tensor.name for tensor in model.graph.initializer}
    feeds: dict[str, Array] = {}
    for value in model.graph.input:
        if value.name not in weights:
            tensor = value.type.tensor_type
            shape = [dim.dim_value for dim in tensor.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            whole = rng.integers(0, 2 if dtype == np.bool_ else 3, shape)
            feeds[value.name] = (
                whole.astype(dtype) if dtype.kind in "iub" else rng.standard_normal(shape).astype(dtype)
            )
    return feeds


def expected(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """What ONNX Runtime makes of the file as it is, by name of the output."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def build(folder: Path, programs: Mapping[str, CProgram], main: str, flags: Sequence[str] = CHECKED) -> Path:
    """One executable of some programs and a main function."""
    for name, program in programs.items():
        save(program, folder, name)
    headers = "".join(f'#include "{name}.h"\n' for name in programs)
    (folder / "main.c").write_text(f"#include <stdio.h>\n{headers}{main}")
    files = [f"{name}.c" for name in programs]
    command = ["cc", *WARNINGS, *flags, *files, "main.c", "-lm", "-o", "program"]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[:4000]
    return folder / "program"


def run(program: Path) -> None:
    """Run it; what it complains of is in the failure."""
    done = subprocess.run([program], cwd=program.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[:4000]


def compare(
    folder: Path, models: Mapping[str, onnx.ModelProto], settings: CSettings | None = CHECKED_SETTINGS
) -> dict[str, CProgram]:
    """Run models as C programs, twice in one process, and compare the second results with those of ONNX Runtime."""
    programs, lines, wanted = {}, [], []
    for name, model in models.items():
        programs[name] = write_c(read_model(model), name, settings)
        feeds = feeds_of(model)
        answers = expected(model, feeds)
        for title, array in feeds.items():
            (folder / f"{name}_{title}.in").write_bytes(np.ascontiguousarray(array).tobytes())
            lines.append(f'    get("{name}_{title}.in", {name}_in_{title}(), {array.nbytes});')
        lines.append(f"    {name}_run();")
        for title, array in answers.items():
            lines.append(f'    put("{name}_{title}.out", {name}_out_{title}(), {array.nbytes});')
            wanted.append((f"{name}_{title}.out", array))
    run(build(folder, programs, _MAIN % "\n".join(lines)))
    for file, array in wanted:
        found = np.frombuffer((folder / file).read_bytes(), array.dtype).reshape(array.shape)
        if array.dtype.kind == "f":
            np.testing.assert_allclose(found, array, rtol=1e-5, atol=1e-5, err_msg=file)
        else:
            np.testing.assert_array_equal(found, array, err_msg=file)
    return programs


_MAIN = """
static void get(const char *name, void *at, size_t size) {
  FILE *file = fopen(name, "rb");
  if (size && fread(at, 1, size, file) != size) fprintf(stderr, "%%s is short", name);
  fclose(file);
}
static void put(const char *name, const void *at, size_t size) {
  FILE *file = fopen(name, "wb");
  fwrite(at, 1, size, file);
  fclose(file);
}
int main(void) {
  for (int round = 0; round < 2; round++) {
%s
  }
  return 0;
}
"""
