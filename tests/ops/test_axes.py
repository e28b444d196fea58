"""Rows of axes: each is run on the real kernel, in parts and whole, in a process of its own."""

from pathlib import Path

import pytest

from neaptide.ir.registry import OpRegistry
from neaptide.ops import registry
from neaptide.ops.axes.table import table
from support.run_elsewhere import told_by
from support.together import together

# What they make has no numbers to compare, or draws other numbers in each run.
NOT_COMPARED = {
    "aten.empty.memory_format",
    "aten.new_empty.default",
    "aten.empty_strided.default",
    "aten.new_empty_strided.default",
    "aten.rand.default",
    "aten.randn.default",
    "aten.rand.generator",
    "aten.randint.low",
    "aten.randn.generator",
}


@pytest.fixture(scope="module")
def checked():
    return told_by(Path(__file__).parent / "axis_check.py")


@pytest.mark.slow
def test_parts_merge_to_the_whole(checked):
    assert not checked["wrong"], "\n\n".join(checked["wrong"])
    assert checked["run"] > 2000


@pytest.mark.slow
def test_every_row_is_compared_with_its_kernel(checked):
    said = {name for name, row in table().items() if row.axes is not None or row.regroups}
    assert said - set(checked["covered"]) == NOT_COMPARED


def test_every_row_is_that_of_a_known_operation():
    assert isinstance(registry(), OpRegistry)
    assert [name for name in table() if name not in registry()] == []


@together(
    "name",
    [
        "aten.where.default",  # sizes that depend on numbers
        "aten.prelu.default",  # the weight lies along dim 1, not under the last
        "aten.one_hot.default",
        "aten.cumsum_.default",
        "aten.as_strided.default",
        "aten.squeeze.default",  # a part of one element would lose its dim
        "aten.view_as.default",  # the other operand is no part
    ],
)
def test_what_is_in_doubt_has_no_axes(name):
    row = registry().require(name).axes
    assert row is None or (row.axes is None and not row.regroups)
