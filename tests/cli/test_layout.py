"""`neaptide layout`: on a CSV, on a graph file, on a program and on a plan."""

import json
import re
import sys
from pathlib import Path

import pytest

from neaptide.ir.text.writer import print_graph
from neaptide.layout.minimalloc_csv import read_csv
from neaptide.layout.result import Layout
from neaptide.layout.validate import check_layout
from neaptide_corpus.random_graphs import random_graph

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "layout-form.md").read_text(encoding="utf-8")

# Nine buffers of which 8 bytes are live at once, and that need 9.
NINE = """id,lower,upper,size
a,0,1,3
b,0,2,3
c,0,5,2
d,1,4,1
e,1,6,2
f,3,6,1
g,3,6,1
h,4,5,2
i,5,6,3
"""
KEYS = {
    "arena_bytes",
    "live_bytes",
    "lower_bound_bytes",
    "status",
    "certificate",
    "solve_seconds",
    "gap",
    "methods",
    "predicted_reserved_bytes",
    "offsets",
}


@pytest.fixture
def nine(tmp_path):
    (tmp_path / "nine.csv").write_text(NINE)
    return "nine.csv"


def test_json_has_exactly_its_keys_and_a_valid_layout(call, nine):
    ending = call("layout", nine, "--json")
    assert ending.code == 0
    content = json.loads(ending.out)
    assert set(content) == KEYS
    assert content["live_bytes"] == 8
    assert content["arena_bytes"] == content["lower_bound_bytes"] == 9
    assert content["status"] == "optimal"
    assert content["certificate"] == "optimal: smaller arenas refuted"
    assert content["gap"] == 0
    assert {key for method in content["methods"].values() for key in method} == {
        "arena_bytes",
        "solve_seconds",
        "nodes",
    }
    problem = read_csv(NINE)
    offsets = tuple(content["offsets"][buffer.name] for buffer in problem.buffers)
    check_layout(problem, Layout(offsets, 9))
    for key in KEYS:
        assert f"`{key}`" in PAGE


def test_placed_csv_has_the_columns_of_the_input_and_offsets(call, nine, tmp_path):
    assert call("layout", nine, "-o", "placed.csv").code == 0
    lines = (tmp_path / "placed.csv").read_text().splitlines()
    assert lines[0] == "id,lower,upper,size,offset"
    assert [line.rpartition(",")[0] for line in lines] == NINE.splitlines()
    again = json.loads(call("layout", "placed.csv", "--json").out)
    assert again["arena_bytes"] == 9


@pytest.mark.parametrize(
    ("capacity", "status"), [("8", "infeasible"), ("7", "infeasible"), ("9", "feasible")]
)
def test_capacity(call, nine, tmp_path, capacity, status):
    ending = call("layout", nine, "--capacity", capacity, "--json", "-o", "placed.csv")
    content = json.loads(ending.out)
    assert content["status"] == status
    reached = status == "feasible"
    assert ending.code == (0 if reached else 3)
    assert (tmp_path / "placed.csv").exists() == reached
    assert (content["offsets"] is None) == (content["arena_bytes"] is None) == (not reached)
    if not reached:
        assert content["certificate"] == "infeasible: capacity refuted"
        assert "nothing is written" in ending.err


def test_table_says_what_is_proved(call, nine):
    out = call("layout", nine).out
    assert re.search(r"\| method +\| +arena \| +above live bytes \| +nodes \| +seconds \|", out)
    assert "live bytes: 8 B" in out
    assert "arena: 9 B. No layout has a smaller one (optimal: smaller arenas refuted)." in out
    refused = call("layout", nine, "--capacity", "8B")
    assert "arena: none within the capacity of 8 B (infeasible: capacity refuted)." in refused.out


def test_pictures(call, nine, tmp_path):
    ending = call("layout", nine, "--picture", "nine.svg", "--text")
    assert ending.code == 0
    assert (tmp_path / "nine.svg").read_text(encoding="utf-8").startswith("<svg")
    assert "live tenths |" in ending.out
    assert call("layout", nine, "--picture", "nine.pdf").code == 2
    assert call("layout", nine, "--picture", "none/nine.svg").code == 2


def test_png_without_matplotlib_names_the_extra_before_the_search(call, nine, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ending = call("layout", nine, "--picture", "nine.png")
    assert ending.code == 4
    assert 'pip install "matplotlib>=3.8"' in ending.err
    assert "placing" not in ending.err


def test_graph_file(call, tmp_path):
    graph = random_graph(4, 12)
    (tmp_path / "step.graph").write_text(print_graph(graph))
    ending = call("layout", "step.graph", "--json", "--work-limit", "20000")
    assert ending.code == 0
    content = json.loads(ending.out)
    assert content["arena_bytes"] >= content["lower_bound_bytes"] >= content["live_bytes"] > 0
    assert all(offset % 64 == 0 for offset in content["offsets"].values())


def test_ladder_of_a_graph(call, tmp_path):
    graph = random_graph(4, 12)
    (tmp_path / "step.graph").write_text(print_graph(graph))
    ending = call("layout", "step.graph", "--ladder", "--json")
    assert ending.code == 0
    rungs = json.loads(ending.out)["ladder"]
    names = ["no reuse", "in-place", "liveness counters", "static plan"]
    assert [rung["name"] for rung in rungs] == names
    assert rungs[0]["bytes"] >= rungs[1]["bytes"] >= rungs[3]["bytes"] > 0
    shown = call("layout", "step.graph", "--ladder").out
    for word in (*names, "100.0%", rungs[2]["note"]):
        assert word in shown


def test_program_and_its_plan(call, tmp_path):
    pytest.importorskip("torch")
    target = "zoo:mlp@tiny"
    plain = json.loads(call("layout", target, "--json", "--work-limit", "2000").out)
    assert plain["status"] == "optimal"
    assert call("plan", target, "--peak", "100%", "-o", "plan.json", "--work-limit", "200").code == 0
    planned = json.loads(call("layout", "plan.json", "--workspace", "--json", "-o", "placed.csv").out)
    assert planned["live_bytes"] > 0
    text = (tmp_path / "placed.csv").read_text()
    assert {buffer.kind for buffer in read_csv(text).buffers} >= {"activation", "gradient"}
    beside = call("layout", target, "--plan", "plan.json")
    assert "outside the arena" in beside.out
    other = call("layout", "zoo:mlp@tiny,batch=3", "--plan", "plan.json")
    assert other.code == 4
    assert "made for another program" in other.err


def test_example_of_the_page_is_a_problem():
    example = re.search(r"```csv\n(.*?)```", PAGE, re.DOTALL).group(1)
    problem = read_csv(example)
    assert [buffer.offset for buffer in problem.buffers] == [0, None, None]
    assert len(problem.buffers[2].gaps) == 2


def test_capacity_with_a_unit_ends_with_the_first_layout_that_fits(call, nine):
    ending = call("layout", nine, "--capacity", "1KiB")
    assert ending.code == 0
    assert "nine: 9 buffers" in ending.out


def test_alignment_raises_that_of_every_buffer(call, nine):
    content = json.loads(call("layout", nine, "--alignment", "16", "--json").out)
    assert all(offset % 16 == 0 for offset in content["offsets"].values())


def test_predicted_reserved_bytes_stand_beside_the_arena(call, nine):
    assert json.loads(call("layout", nine, "--json").out)["predicted_reserved_bytes"] == 2 << 20
    assert "predicted reserved: 2.00 MiB (2097152 bytes)" in call("layout", nine).out
