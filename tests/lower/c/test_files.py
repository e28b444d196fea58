"""The files of the C target: sizes that the linker sees, memories, and models that are refused."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from lower.c import c_programs
from neaptide.errors import InfeasibleBudget, LoweringError, NeaptideError, UsageError
from neaptide.frontends.onnx.reader import read_model
from neaptide.lower.c.memory import Memory
from neaptide.lower.c.of_model import write_c
from neaptide.lower.c.write import CSettings, save
from neaptide.ops.onnx import registry
from neaptide.transform.passes import PASSES
from neaptide.transform.rewrite import apply_rewrite
from support import onnx_cases

_NET = """g (float[1,2,16,16] x, float[4,2,3,3] w0, float[4,4,3,3] w1) => (float[1,4,16,16] y)
    { a = Conv<pads=[1,1,1,1]>(x, w0) b = Relu(a) y = Conv<pads=[1,1,1,1]>(b, w1) }"""
_LARGE, _SMALL = 4 * 4 * 256, 4 * 2 * 256


def _compiled(folder: Path, name: str, *flags: str) -> str:
    """The symbols of the object file, with their sizes and sections."""
    command = ["cc", *c_programs.WARNINGS, "-Os", *flags, "-c", f"{name}.c"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    table = ["objdump", "-t", f"{name}.o"]
    return subprocess.run(table, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_the_zeroed_data_of_the_object_file_is_the_arena_that_is_said(tmp_path: Path) -> None:
    program = write_c(onnx_cases.graph_of(_NET), "net")
    save(program, tmp_path, "net")
    assert program.arena_bytes == (2 * _LARGE,)
    assert f"#define NET_ARENA_BYTES {2 * _LARGE}" in program.header
    symbols = _compiled(tmp_path, "net")
    sizes = [int(size, 16) for size in re.findall(r"\.bss\s+([0-9a-f]{8,})\s+net_arena", symbols)]
    assert sizes == [2 * _LARGE]
    assert not re.search(r"\s\.(bss|data)\s+0*[1-9a-f][0-9a-f]*\s+(?!net_arena)", symbols)
    assert "malloc" not in symbols


def test_the_header_compiles_by_itself_and_says_offsets(tmp_path: Path) -> None:
    header = write_c(onnx_cases.graph_of(_NET), "net").header
    (tmp_path / "net.h").write_text(header)
    (tmp_path / "only.c").write_text(
        '#include "net.h"\nint f(void) { return NET_IN_X_OFFSET + NET_OUT_Y_BYTES; }\n'
    )
    _compiled(tmp_path, "only")
    assert f"#define NET_IN_X_BYTES {_SMALL}" in header
    assert "float *net_in_x(void);" in header
    assert "const float *net_out_y(void);" in header


def test_two_memories_have_an_array_and_a_section_each(tmp_path: Path) -> None:
    memories = (Memory("sram", _LARGE), Memory("psram", 4 * _LARGE))
    program = write_c(onnx_cases.graph_of(_NET), "net", CSettings(memories))
    save(program, tmp_path, "net")
    fast, slow = program.arena_bytes
    assert 0 < fast <= _LARGE
    assert 0 < slow <= 4 * _LARGE
    place = '-DNET_PSRAM=__attribute__((section(".bss.psram")))'
    symbols = _compiled(tmp_path, "net", place)
    assert re.search(rf"\.bss\.psram\s+{slow:016x}\s+net_arena_psram", symbols)
    assert re.search(rf"\.bss\s+{fast:016x}\s+net_arena_sram", symbols)
    settings = CSettings(memories, red_zone_bytes=0)
    c_programs.compare(tmp_path, {"net": onnx_cases.model_of(_NET)}, settings)


@pytest.mark.parametrize(
    ("memories", "missing", "where"),
    [
        ((Memory("", 2 * _LARGE - 1),), 1, "the memory has"),
        # What a tensor leaves of a memory is of no use to one that does not fit there.
        ((Memory("sram", _LARGE - 1), Memory("psram", _LARGE)), _LARGE, "in psram"),
        ((Memory("sram", _SMALL), Memory("psram", _SMALL)), 2 * _LARGE - _SMALL, "in psram"),
    ],
)
def test_memories_that_are_too_small_are_refused_with_the_bytes_that_are_missing(
    memories: tuple[Memory, ...], missing: int, where: str
) -> None:
    with pytest.raises(InfeasibleBudget, match=rf"\({missing} bytes\) are missing") as caught:
        write_c(onnx_cases.graph_of(_NET), "net", CSettings(memories))
    assert caught.value.exit_code == 3
    assert where in str(caught.value)
    last = memories[-1].capacity_bytes or 0
    enough = (*memories[:-1], Memory(memories[-1].name, last + missing))
    assert write_c(onnx_cases.graph_of(_NET), "net", CSettings(enough)).arena_bytes[-1] == last + missing


def test_a_step_outside_a_buffer_is_seen_in_the_checked_build(tmp_path: Path) -> None:
    """What all comparisons rely on: a read of bytes that hold nothing stops the program."""
    program = write_c(onnx_cases.graph_of(_NET), "net", c_programs.CHECKED_SETTINGS)
    text = program.source
    calls = re.findall(r"  nt_conv_f32\((.*?), w", text)
    assert len(calls) == 2
    broken = text.replace(f"nt_conv_f32({calls[1]}, w", f"nt_conv_f32({calls[1]} + 16, w")
    save(program, tmp_path, "net")
    main = "int main(void) { net_run(); return 0; }\n"
    built = c_programs.build(tmp_path, {"net": program}, main)
    c_programs.run(built)
    (tmp_path / "net.c").write_text(broken)
    flags = [*c_programs.WARNINGS, *c_programs.CHECKED]
    subprocess.run(["cc", *flags, "net.c", "main.c", "-lm", "-o", "program"], cwd=tmp_path, check=True)
    done = subprocess.run([built], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "use-after-poison" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("g (float[1,4,4] x) => (float[1] y) { y = Det(x) }", "onnx.Det"),
        ("g (float[4] x) => (float[4] y) { a = Shrink(x) b = Bernoulli(a) y = Add(a, b) }", "onnx.Bernoulli, onnx.Shrink"),
        ("g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }", "are not known: N"),
        ("g (float16[4] x) => (float16[4] y) { y = Relu(x) }", "element type float16"),
        ("g (float[1,1,4,4,4] x, float[1,1,3,3,3] w) => (float[1,1,2,2,2] y) { y = Conv(x, w) }", "3 spatial axes"),
        ("g (float[1,3,4,4] x, float[1,5,3,3] w) => (float[1,1,2,2] y) { y = Conv(x, w) }", "reads 3 channels by filters of"),
    ],
)  # fmt: skip
def test_a_model_that_cannot_be_written_is_refused_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(NeaptideError, match=re.escape(said)) as caught:
        write_c(read_model(onnx_cases.model_of(text, 18)), "net")
    assert caught.value.what.count("\n") == 0


def test_scales_that_are_no_numbers_are_refused() -> None:
    text = "g (float[1,1,4,4] x, float[4] s) => (float[1,1,8,8] y) { y = Resize(x, , s) }"
    made = onnx_cases.model_of(text, 18)
    del made.graph.input[1]
    made.graph.initializer.append(numpy_helper.from_array(np.array([1, 1, np.nan, 2], np.float32), "s"))
    with pytest.raises(LoweringError, match="has the scales"):
        write_c(read_model(made), "net")


def test_a_name_that_is_no_identifier_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot name a C program"):
        write_c(onnx_cases.graph_of(_NET), "two words")


def test_all_operators_without_a_kernel_are_named_at_once() -> None:
    with pytest.raises(LoweringError, match=r"no kernel for onnx\.Hardmax, onnx\.Trilu"):
        write_c(
            onnx_cases.graph_of("g (float[3,3] x) => (float[3,3] y) { a = Trilu(x) y = Hardmax(a) }", 18),
            "net",
        )


@pytest.mark.parametrize(("opset", "name"), [(9, "windows_2"), (9, "channel_fission_2"), (11, "windows_2")])
def test_what_passes_insert_is_written_for_old_opsets_as_for_new_ones(opset: int, name: str) -> None:
    text = """g (float[1,1,32,32] x, float[16,1,3,3] w, float[16] wb, float[8,16,3,3] w2) => (float[1,8,8,8] y) {
      a = Conv <pads = [1,1,1,1]> (x, w, wb)
      r = Relu (a)
      p = MaxPool <kernel_shape = [4,4], strides = [4,4]> (r)
      y = Conv <pads = [1,1,1,1]> (p, w2)
    }"""
    sources = []
    for version in (opset, 13):
        model = onnx_cases.graph_of(text, version)
        place = next(iter(PASSES[name].find(model.graph, registry())))
        graph = apply_rewrite(model.graph, registry(), place, PASSES).graph
        sources.append(write_c(model, "net", graph=graph).source)
    assert sources[0] == sources[1]
