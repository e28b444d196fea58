"""`.tflite` files on the command line: profiled, ordered, laid out, planned for an arena."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from frontends.tflite.small_tflite import chain, nested
from neaptide.cli.model_files.commands import parse_memories
from neaptide.errors import UsageError
from neaptide.frontends.tflite.reader import read_tflite
from neaptide_corpus.tflite_graphs import irregular_network
from support.together import together


@pytest.fixture
def model(clean_place):
    (clean_place / "net.tflite").write_bytes(irregular_network(0).to_bytes())
    return "net.tflite"


def test_a_plan_that_fits_is_written_with_its_header(call, model):
    ending = call("plan", model, "--target", "tflm", "--memory", "256KiB", "-o", "out", "--json")
    assert ending.code == 0
    found = json.loads(ending.out)
    assert found["arena_bytes"] == found["lower_bound_bytes"] < found["baseline_arena_bytes"]
    assert found["total_bytes"] == sum(
        found[f"{part}_bytes"] for part in ("arena", "variable", "interpreter")
    )
    assert found["files"] == ["out/net.tflite", "out/net_arena.h"]
    offsets = read_tflite("out/net.tflite").offsets
    assert offsets is not None
    assert f"#define NET_PLANNED_BYTES {found['arena_bytes']} " in Path("out/net_arena.h").read_text()


def test_a_file_may_be_named_instead_of_a_folder(call, model):
    assert call("plan", model, "-o", "other.tflite").code == 0
    assert read_tflite("other.tflite").offsets is not None
    assert "#define OTHER_ARENA_BYTES" in Path("other_arena.h").read_text()


def test_what_does_not_fit_is_written_and_told_with_the_bytes_that_are_missing(call, model):
    ending = call("plan", model, "--memory", "64KiB", "-o", "out")
    assert ending.code == 3
    found = json.loads(call("plan", model, "--memory", "64KiB", "--json").out)
    assert found["missing_bytes"] == found["total_bytes"] - (64 << 10) > 0
    assert f"({found['missing_bytes']} bytes) are missing" in ending.out
    assert Path("out/net.tflite").is_file()


def test_results_in_place_are_planned_for_the_reference_kernels_only(call, clean_place):
    (clean_place / "rows.tflite").write_bytes(chain(3, (1, 64)).to_bytes())
    found = json.loads(call("plan", "rows.tflite", "--json").out)
    in_place = json.loads(call("plan", "rows.tflite", "--target", "tflm-reference", "--json").out)
    assert (found["target"], in_place["target"]) == ("tflm", "tflm-reference")
    assert in_place["baseline_arena_bytes"] == found["baseline_arena_bytes"]
    assert (found["arena_bytes"], in_place["arena_bytes"]) == (512, 256)


def test_order_and_layout_agree_with_the_profile(call, model):
    profile = json.loads(call("profile", model, "--json").out)
    order = json.loads(call("order", model, "--json").out)
    layout = json.loads(call("layout", model, "--alignment", "16", "--json").out)
    assert order["methods"]["program_order"]["peak_bytes"] == profile["peak_bytes"] == layout["live_bytes"]
    assert order["peak_bytes"] < profile["peak_bytes"]
    assert sum(row["bytes"] for row in profile["at_peak"]) == profile["peak_bytes"]
    assert profile["weight_bytes"] > 0


def test_torch_is_not_needed(model):
    code = (
        "import sys; sys.modules['torch'] = None; from neaptide.cli.main import main; "
        "sys.exit(sum(main([command, sys.argv[1]]) for command in ('profile', 'order', 'layout', 'plan')))"
    )
    subprocess.run([sys.executable, "-c", code, model], check=True, capture_output=True)


@together(
    ("arguments", "words"),
    [
        (("plan", "net.tflite", "--memory", "sram=256KiB,psram=4MiB"), "has one memory"),
        (("plan", "net.tflite", "--memory", "a=1KiB,a=2KiB"), "a is there twice"),
        (("plan", "net.tflite", "--memory", "lots"), "lots"),
        (("plan", "net.tflite", "--target", "ort"), "targets of .tflite files: tflm, tflm-reference"),
        (("plan", "net.tflite", "-o", "."), "take the place of the model"),
        (("plan", "net.tflite", "--peak", "60%"), "--peak has no meaning"),
        (("plan", "net.tflite", "-o", "no/folder/out"), "cannot be written"),
        (("plan", "train.py:factory", "--memory", "1KiB"), "--memory is for model files"),
        (("layout", "net.tflite", "--plan", "net.tflite"), "takes no plan"),
        (("profile", "missing.tflite"), "cannot be read"),
        (("compare", "net.tflite"), "does not take"),
        (("plan", "nested.tflite"), "operators in a call"),
        (("plan", "short.tflite"), "damaged"),
    ],
)
def test_mistakes_are_told(arguments, words, call, clean_place):
    (clean_place / "net.tflite").write_bytes(chain(3).to_bytes())
    (clean_place / "nested.tflite").write_bytes(nested(20).to_bytes())
    (clean_place / "short.tflite").write_bytes(chain(3).to_bytes()[:200])
    ending = call(*arguments)
    assert ending.code in {2, 4}
    assert words in ending.err
    assert "Traceback" not in ending.err


def test_memories_have_names_and_sizes():
    assert parse_memories("256KiB") == {"memory": 256 << 10}
    assert parse_memories("sram=256KiB, psram=4MiB") == {"sram": 256 << 10, "psram": 4 << 20}
    with pytest.raises(UsageError, match="no name"):
        parse_memories("=4MiB")
