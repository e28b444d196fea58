import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.errors import UsageError
from neaptide.schedule.order.neutral import FORMAT, from_json, from_mapping, to_json, to_mapping
from schedule.order.order_problems import random_problem
from support.drawn import examples
from support.together import together

GOOD = {
    "format": FORMAT,
    "storages": [
        {"id": "x", "nbytes": 4},
        {"id": "w", "nbytes": 8, "resident": True},
        {"id": "y", "nbytes": 4, "output": True},
    ],
    "ops": [
        {"id": "f", "reads": ["x", "w"], "writes": ["y"], "workspace": 3, "in_place": [["y", "x"]]},
        {"id": "g", "reads": ["w"], "writes": [], "after": ["f"]},
    ],
}


@given(st.integers(0, 10**6), st.integers(0, 8))
@settings(max_examples=examples(120), deadline=None)
def test_text_round_trip(seed, n):
    problem = random_problem(seed, n, in_place=True, mutation=True)
    assert from_json(to_json(problem)) == problem
    assert from_json(to_json(problem).encode()) == problem


def test_reads_every_key():
    problem = from_mapping(GOOD)
    assert to_mapping(problem) == GOOD
    assert problem.ops[0].in_place == ((2, 0),)
    assert problem.predecessors == ((), (0,))


def change(path, value):
    content = json.loads(json.dumps(GOOD))
    spot = content
    for key in path[:-1]:
        spot = spot[key]
    spot[path[-1]] = value
    return content


@together(
    ("content", "words"),
    [
        ([], "the ordering problem"),
        (change(["format"], "neaptide.order/2"), "neaptide.order/2"),
        (change(["storages"], {}), "$.storages"),
        (change(["storages", 1, "id"], "x"), "two storages have the id 'x'"),
        (change(["storages", 0, "nbytes"], -1), "storage 'x'"),
        (change(["storages", 0, "nbytes"], True), "storage 'x'"),
        (change(["storages", 0, "nbytes"], 1.5), "storage 'x'"),
        (change(["storages", 0, "output"], 1), "storage 'x'"),
        (change(["storages", 0, "kept"], True), "storage 'x'"),
        (change(["ops", 1, "id"], "f"), "two ops have the id 'f'"),
        (change(["ops", 1, "id"], ""), "op number 1"),
        (change(["ops", 0, "reads"], ["q"]), "op 'f' names 'q' in `reads`"),
        (change(["ops", 0, "writes"], "y"), "op 'f'"),
        (change(["ops", 0, "after"], ["g"]), "op 'f' names 'g' in `after`"),
        (change(["ops", 0, "in_place"], [["x", "y"]]), "op 'f'"),
        (change(["ops", 0, "in_place"], [["y"]]), "op 'f'"),
        (change(["ops", 0, "workspace"], "3"), "op 'f'"),
    ],
)
def test_mistakes_are_named(content, words):
    with pytest.raises(UsageError) as error:
        from_json(json.dumps(content))
    assert words in str(error.value)


def test_what_is_no_json_is_refused():
    with pytest.raises(UsageError, match="no JSON"):
        from_json("{")
