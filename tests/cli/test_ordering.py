"""`neaptide order`: on the neutral form, on a graph file and on a program."""

import json
import re
from pathlib import Path

import pytest

from neaptide.ir.text.writer import print_graph
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.from_graph import order_problem
from neaptide.schedule.order.neutral import from_json, from_mapping
from neaptide.schedule.order.portfolio import METHODS
from neaptide_corpus.random_graphs import random_graph

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "order-form.md").read_text(encoding="utf-8")

PROBLEM = {
    "format": "neaptide.order/1",
    "name": "two branches",
    "storages": [
        {"id": "x", "nbytes": 10},
        {"id": "big", "nbytes": 90},
        {"id": "small", "nbytes": 5},
        {"id": "wide", "nbytes": 80},
        {"id": "thin", "nbytes": 5},
        {"id": "y", "nbytes": 1, "output": True},
    ],
    "ops": [
        {"id": "f", "reads": ["x"], "writes": ["big"]},
        {"id": "g", "reads": ["x"], "writes": ["wide"]},
        {"id": "f2", "reads": ["big"], "writes": ["small"]},
        {"id": "g2", "reads": ["wide"], "writes": ["thin"]},
        {"id": "h", "reads": ["small", "thin"], "writes": ["y"]},
    ],
}


@pytest.fixture
def problem_file(tmp_path):
    (tmp_path / "problem.json").write_text(json.dumps(PROBLEM))
    return "problem.json"


def test_json_has_order_peak_bound_certificate_and_methods(call, problem_file, tmp_path):
    ending = call("order", problem_file, "--json", "-o", "found.json")
    assert ending.code == 0
    content = json.loads(ending.out)
    assert json.loads((tmp_path / "found.json").read_text()) == content
    assert content["peak_bytes"] == content["order_lower_bound_bytes"] == 105
    assert content["certificate"].startswith("optimal")
    assert content["order"] in (["g", "g2", "f", "f2", "h"], ["f", "f2", "g", "g2", "h"])
    assert content["methods"]["program_order"]["peak_bytes"] == 180
    assert content["solve_seconds"] >= content["methods"]["program_order"]["solve_seconds"] >= 0
    names = {op["id"]: k for k, op in enumerate(PROBLEM["ops"])}
    order = [names[name] for name in content["order"]]
    assert evaluate_order(from_mapping(PROBLEM), order).peak_bytes == 105
    for key in content:
        assert key == "name" or f"`{key}`" in PAGE


def test_table_has_all_methods(call, problem_file):
    ending = call("order", problem_file, "--method", "all")
    assert ending.code == 0
    for name in METHODS:
        assert re.search(rf"\| {name} +\|", ending.out)
        assert f"`{name}`" in PAGE
    assert "not run" not in ending.out
    assert "hierarchical: peak after each round: 105 B" in ending.out
    assert "No order has a lower peak" in ending.out
    some = call("order", problem_file, "--method", "lpmf", "--work-limit", "5")
    assert "not run" in some.out


def test_graph_file(call, tmp_path):
    graph = random_graph(4, 12)
    (tmp_path / "step.graph").write_text(print_graph(graph))
    content = json.loads(call("order", "step.graph", "--json").out)
    assert content["peak_bytes"] <= evaluate_order(order_problem(graph), range(12)).peak_bytes
    assert sorted(int(name.split("#")[1]) for name in content["order"]) == list(range(12))


def test_program(call):
    pytest.importorskip("torch")
    ending = call("order", "zoo:mlp@tiny", "--json", "--work-limit", "20000")
    assert ending.code == 0
    content = json.loads(ending.out)
    assert content["peak_bytes"] <= content["methods"]["program_order"]["peak_bytes"]


def test_example_of_the_page_is_a_problem():
    example = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL).group(1)
    assert from_json(example).op_count == 2
