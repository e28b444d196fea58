"""JSON form: exact round trip, errors with their path."""

import json

import pytest
from hypothesis import given

from hand_graphs import in_place_graph, loop_graph
from neaptide.errors import VerifyError
from neaptide.ir.serial import from_json, to_json
from strategies import graphs
from together import together


@pytest.mark.parametrize("make", [in_place_graph, loop_graph])
def test_hand_graphs_round_trip(make):
    graph = make()
    data = to_json(graph)
    assert from_json(data) == graph
    assert to_json(from_json(data)) == data
    assert json.loads(data)["format"] == "neaptide.graph/1"


@given(graphs())
def test_random_graphs_round_trip(graph):
    assert from_json(to_json(graph)) == graph


def _changed(path, value):
    data = json.loads(to_json(in_place_graph()))
    *parents, last = path
    place = data
    for step in parents:
        place = place[step]
    place[last] = value
    return json.dumps(data).encode()


@together(
    ("path", "value", "where"),
    [
        (("format",), "neaptide.graph/2", "$.format"),
        (("graph", "name"), 3, "$.graph.name"),
        (("graph", "nodes", 1, "op"), None, "$.graph.nodes[1].op"),
        (("graph", "storages", 0, "kind"), "tmp", "$.graph.storages[0].kind"),
        (("graph", "values", 2, "offset"), "4+", "$.graph.values[2].offset"),
        (("graph", "nodes", 0, "args"), [{"ref": "0"}], "$.graph.nodes[0].args[0]"),
        (("graph", "nodes", 0, "kwargs"), {"a": [{"int": "x"}]}, "$.graph.nodes[0].kwargs.a[0]"),
        (("graph", "nodes", 0, "extra"), 1, "$.graph.nodes[0]"),
    ],
)
def test_errors_name_their_path(path, value, where):
    with pytest.raises(VerifyError) as raised:
        from_json(_changed(path, value))
    assert raised.value.where == where


@together("data", [b"", b"{", b"[]", b"{}", b"\xff", to_json(in_place_graph())[:-20]])
def test_broken_files_are_refused(data):
    with pytest.raises(VerifyError):
        from_json(data)


@pytest.mark.parametrize("outputs", [[99], [-1]])
def test_ids_out_of_range_are_refused(outputs):
    with pytest.raises(VerifyError, match=r"no value|twice|used before"):
        from_json(_changed(("graph", "nodes", 0, "outputs"), outputs))


def test_numbers_beyond_json_are_exact():
    huge = 2**80 + 1
    data = _changed(("graph", "nodes", 0, "kwargs"), {"n": {"int": str(huge)}})
    graph = from_json(data)
    assert graph.nodes[0].kwarg("n") == huge
    assert from_json(to_json(graph)) == graph
