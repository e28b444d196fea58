from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

from neaptide.frontends.guards.fact_words import described, difference, replaced, user_names
from neaptide.frontends.guards.tensor_facts import Geometry
from together import together

PLAIN = (torch.Tensor, ())
GEOMETRY = Geometry((8, 3), (3, 1), torch.float32, "cpu", False, *PLAIN)


@together(
    ("args", "kwargs", "names"),
    [
        ((1,), {}, ["batch"]),
        (({"images": 1, "labels": 2},), {}, ["batch['images']", "batch['labels']"]),
        (([1, (2, 3)],), {}, ["batch[0]", "batch[1][0]", "batch[1][1]"]),
        ((1, [2]), {"mask": 3}, ["args[0]", "args[1][0]", "mask"]),
        ((), {"x": {"y": 1}}, ["x['y']"]),
        ((), {}, []),
    ],
)
def test_leaves_are_named_as_the_user_reaches_them(args, kwargs, names):
    structure = pytree.tree_structure((args, kwargs))
    found = user_names(structure)
    assert list(found.values()) == names
    assert list(found) == [f"batch[{position}]" for position in range(len(names))]


def test_names_of_facts_about_a_leaf_are_replaced_too():
    names = {"batch[0]": "batch['x']"}
    assert replaced("batch[0] shares bytes with", names) == "batch['x'] shares bytes with"
    assert replaced("training", names) == "training"


@pytest.mark.parametrize(
    ("then", "words"),
    [
        (Geometry((9, 3), (3, 1), torch.float32, "cpu", False, *PLAIN), "x has shape (8, 3), was (9, 3)"),
        (Geometry((8, 3), (1, 8), torch.float32, "cpu", False, *PLAIN), "x has strides (3, 1), was (1, 8)"),
        (
            Geometry((8, 3), (3, 1), torch.float64, "cuda", True, *PLAIN),
            "x is float32, was float64 and is on cpu, was cuda and has requires_grad False, was True",
        ),
        (
            Geometry((8, 3), (3, 1), torch.float32, "cpu", False, torch.nn.Parameter, ("conjugated",)),
            "x is a Tensor, was Parameter and is marked plain, was conjugated",
        ),
        ((bool, True), None),
    ],
)
def test_differences_are_no_raw_tuples(then, words):
    found = difference("x", GEOMETRY, then)
    assert found == words if words else found.endswith("was True")


def test_facts_are_described_for_a_plan_file():
    assert described(GEOMETRY) == "float32 of shape (8, 3)"
    assert described(Geometry((3, 8), (1, 3), torch.bfloat16, "cuda", True, *PLAIN)) == (
        "bfloat16 of shape (3, 8) with strides (1, 3) on cuda with requires_grad"
    )
    assert described((int, 3)) == "3"
