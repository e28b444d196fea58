"""`neaptide recompute` and `neaptide sweep`, on instances and on a program."""

import json
import re
from itertools import accumulate
from pathlib import Path

import pytest

from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.recompute_form import from_json
from neaptide_corpus.recompute_forms import recompute_form
from support.together import together

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "recompute-form.md").read_text(encoding="utf-8")
WORK = ("--work-limit", "30000")


@pytest.fixture
def instance(tmp_path):
    (tmp_path / "instance.json").write_text(json.dumps(recompute_form("transformer", 30)))
    return "instance.json"


def problem(name):
    return from_json(Path(name).read_bytes())


def test_json_has_all_that_the_page_says(call, instance, tmp_path):
    ending = call(
        "recompute", instance, "--peak", "80%", "--json", "--also", "block_dp", "-o", "out.json", *WORK
    )
    assert ending.code == 0
    content = json.loads(ending.out)
    assert json.loads((tmp_path / "out.json").read_text()) == content
    step = problem(instance)
    peak = Evaluator(step).peak
    assert content["budget_bytes"] == int(0.8 * peak)
    assert Evaluator(step, content["sequence"]).peak == content["peak_bytes"] <= content["budget_bytes"]
    seconds = step.sequence_seconds(content["sequence"])
    assert seconds / step.baseline_seconds - 1 == pytest.approx(content["overhead"])
    assert 0 < content["bound_overhead"] <= content["overhead"] + 1e-12
    assert set(content["methods"]) == {"default", "block_dp"}
    assert content["methods"]["default"]["overhead"] == content["overhead"]
    for key in (*content, *content["methods"]["block_dp"]):
        assert f"`{key}`" in PAGE


def replayed(nodes, sequence):
    """(peak bytes, seconds) of a node sequence, by the words of the reference page alone."""
    change = [0] * (len(sequence) + 1)
    scratch = []
    made_at, used_at = {}, {}

    def end(node, position):
        change[made_at[node]] += nodes[node]["size"]
        change[position + 1] -= nodes[node]["size"]

    for position, node in enumerate(sequence):
        for read in nodes[node]["deps"]:
            assert read in made_at, f"node {node} reads {read} before it is made"
            used_at[read] = position
        if node in made_at:
            end(node, used_at[node])
        made_at[node] = used_at[node] = position
        scratch.append(nodes[node].get("workspace", 0))
    assert made_at.keys() == set(range(len(nodes)))
    for node in made_at:
        end(node, len(sequence) - 1 if nodes[node].get("out") else used_at[node])
    live = list(accumulate(change[:-1]))
    return max(a + b for a, b in zip(live, scratch, strict=True)), sum(nodes[n]["seconds"] for n in sequence)


@together(
    ("family", "share", "name"),
    [
        *(("transformer", 60, "default"), ("skips", 70, "default"), ("small_ops", 80, "default")),
        *(("transformer", 60, "block_dp"), ("skips", 70, "rotor")),
        *(("small_ops", 80, "min-cut-ratios"), ("transformer", 60, "sqrt-n")),
    ],
    quick=(2, 3, 4),
)
def test_the_sequence_replays_to_what_is_said(call, tmp_path, family, share, name):
    nodes = recompute_form(family, 40, 3)
    for node in nodes:
        node["seconds"] = max(node.pop("flops") / 10e12, node.pop("moved") / 1e12)
        node["workspace"] = node["size"] // 3
    (tmp_path / "instance.json").write_text(json.dumps(nodes))
    options = ("--peak", f"{share}%", "--strategy", name, "--also", "greedy_recompute", "--json")
    content = json.loads(call("recompute", "instance.json", *options, "--work-limit", "500").out)
    peak, seconds = replayed(nodes, content["sequence"])
    before_peak, before_seconds = replayed(nodes, range(len(nodes)))
    assert content["peak_bytes"] == peak <= max(before_peak, content["budget_bytes"])
    assert content["budget_bytes"] == share * before_peak // 100
    assert content["overhead"] == pytest.approx(seconds / before_seconds - 1, abs=1e-12)
    assert set(content["methods"]) == {name, "greedy_recompute"}
    # The words that programs which read it rely on.
    words = "sequence peak_bytes overhead bound_overhead solve_seconds strategy methods"
    assert set(words.split()) <= content.keys()


def test_a_budget_out_of_reach_ends_with_3_and_still_prints(call, instance):
    ending = call("recompute", instance, "--peak", "1%", "--json", *WORK)
    assert ending.code == 3
    content = json.loads(ending.out)
    assert content["bound_overhead"] is None
    assert content["status"] == "infeasible"
    assert content["peak_bytes"] > content["budget_bytes"]
    assert set(content["sequence"]) == set(range(problem(instance).node_count))
    assert "not reached" in call("recompute", instance, "--peak", "1%", *WORK).out


def test_sweep_prints_a_curve_and_writes_table_and_picture(call, instance, tmp_path):
    options = ("--points", "4", "-o", "curve.csv", "--picture", "curve.svg", *WORK)
    ending = call("sweep", instance, "--json", *options)
    assert ending.code == 0
    content = json.loads(ending.out)
    points = content["points"]
    assert len(points) == 4
    assert points[0]["peak_bytes"] == content["baseline_peak_bytes"]
    assert points[-1]["peak_bytes"] == content["lowest_peak_bytes"] >= content["lowest_bound_bytes"]
    overheads = [point["overhead"] for point in points]
    assert overheads == sorted(overheads)
    for key in (*content, *points[0]):
        assert f"`{key}`" in PAGE
    rows = (tmp_path / "curve.csv").read_text().splitlines()
    assert rows[0] == "budget_bytes,peak_bytes,overhead,bound_overhead,strategy"
    assert len(rows) == 5
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")
    text = call("sweep", instance, "--points", "4", *WORK).out
    assert "time against memory" in text
    assert "of 4 budgets proved" in text


def test_a_curve_that_was_cut_short_says_so_everywhere(call, instance):
    words = "the work limit ended the search"
    cut = call("sweep", instance, "--points", "4", "--work-limit", "50")
    assert f"Not finished: {words}" in cut.out
    assert words in cut.err
    assert json.loads(call("sweep", instance, "--json", "--work-limit", "50").out)["limit"] == "work"
    whole = call("sweep", instance, "--points", "4", "--json", "--work-limit", "1000000")
    assert json.loads(whole.out)["limit"] is None
    assert "limit ended" not in whole.err


def test_sweep_of_a_program_whose_regions_may_run_in_parts(call, tmp_path):
    pytest.importorskip("torch")
    options = ("--numerics", "close", "--points", "2", "-o", "front.csv", "--picture", "front.svg")
    ending = call("sweep", "zoo:mlp@tiny", "--json", *options, "--work-limit", "1000", "--workers", "1")
    assert ending.code == 0
    content = json.loads(ending.out)
    points = content["points"]
    assert points[-1]["peak_bytes"] < content["baseline_peak_bytes"]
    for key in (*content, *points[0]):
        assert f"`{key}`" in PAGE
    rows = (tmp_path / "front.csv").read_text().splitlines()
    assert rows[0] == "peak_bytes,overhead,variant"
    assert len(rows) == len(points) + 1
    assert (tmp_path / "front.svg").read_text().startswith("<svg")


def test_example_of_the_page_is_an_instance():
    example = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL).group(1)
    step = from_json(example)
    assert step.node_count == 4
    assert step.seconds[2] == 2e-8


def test_sweep_of_a_program(call):
    pytest.importorskip("torch")
    ending = call("sweep", "zoo:mlp@tiny", "--points", "3", "--json", *WORK)
    assert ending.code == 0
    content = json.loads(ending.out)
    assert content["lowest_peak_bytes"] < content["baseline_peak_bytes"]
