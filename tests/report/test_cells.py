import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from neaptide.report import cells
from neaptide.units import parse_size
from together import together


@together(
    ("made", "expected"),
    [
        (cells.byte_cell(None), "-"),
        (cells.byte_cell(3 * 2**29), "1.50 GiB"),
        (cells.seconds_cell(None), "-"),
        (cells.seconds_cell(0.412), "412 ms"),
        (cells.ratio_cell(3.0, 2.0), "1.50x"),
        (cells.ratio_cell(3.0, None), "-"),
        (cells.ratio_cell(3.0, 0), "-"),
        (cells.difference_cell(0.0), "0"),
        (cells.difference_cell(1.234e-7), "1.2e-07"),
        (cells.difference_cell(math.nan), "nan"),
        (cells.yes_no_cell(None), "-"),
        (cells.yes_no_cell(False), "no"),
        (cells.count_cell(0, 0), "0"),
        (cells.count_cell(2, 2048), "2 (2.0 KiB)"),
        (cells.counted(1, "step"), "1 step"),
        (cells.percent(1, 300), "0.3 %"),
        (cells.percent(0, 0), "0 %"),
        (
            cells.shares({"optimizer_state": 1, "activation": 3, "output": 0}),
            "75 % activation, 25 % optimizer state",
        ),
        (cells.shares({"activation": 9999, "output": 1}), "100 % activation"),
        (cells.place(""), ""),
        (cells.place("/v/lib/site-packages/torch/nn/f.py:3"), "torch/nn/f.py:3"),
        (cells.place(str(Path.cwd() / "a" / "b.py") + ":3"), str(Path("a") / "b.py") + ":3"),
        (cells.place("/elsewhere/b.py:3"), "/elsewhere/b.py:3"),
        (cells.bullets("Notes", ()), ""),
        (cells.bullets("Notes", ("a", "b")), "Notes:\n  - a\n  - b"),
    ],
)
def test_cells(made, expected):
    assert made == expected


@together(
    ("nbytes", "at_least", "expected"),
    [
        (512, True, "512"),
        (24 * 2**30, False, "24GiB"),
        (23 * 2**30 + 2**29, True, "23.5GiB"),
        (2**20 + 1, True, "1.01MiB"),
    ],
)
def test_sizes_as_they_are_typed(nbytes, at_least, expected):
    assert cells.size_argument(nbytes, at_least=at_least) == expected


@given(st.integers(1, 2**50))
def test_a_typed_size_is_on_the_side_that_was_asked_for(nbytes):
    assert parse_size(cells.size_argument(nbytes, at_least=True)) >= nbytes
    assert parse_size(cells.size_argument(nbytes, at_least=False)) <= nbytes
