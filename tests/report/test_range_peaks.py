"""Curves of peaks are made of shapes for which the program holds, at the sizes that are told."""

import pytest

from neaptide.plans import range_peaks
from neaptide.symbolic.dims import Dim

ROWS, TOKENS = Dim("rows", 2, 6), Dim("tokens", 4, 104)


def peak(shape):
    return 1000 * shape["rows"] + shape["tokens"]


def test_the_longest_range_is_the_one_along_which_the_curves_run():
    found = range_peaks((ROWS, TOKENS), lambda _: True, peak, lambda shape: peak(shape) - 1, 7)
    assert {curve.dim for curve in found.curves} == {"tokens"}
    assert [curve.beside for curve in found.curves] == [{"rows": n} for n in range(2, 7)]
    assert found.limit_bytes == 7
    for curve in found.curves:
        assert (curve.sizes[0], curve.sizes[-1]) == (4, 104)
        shapes = [{**curve.beside, "tokens": size} for size in curve.sizes]
        assert curve.baseline_peak_bytes == tuple(map(peak, shapes))
        assert curve.planned_peak_bytes == tuple(peak(shape) - 1 for shape in shapes)


def test_shapes_for_which_the_program_does_not_hold_are_left_out():
    found = range_peaks((ROWS, TOKENS), lambda shape: shape["rows"] != 3 and shape["tokens"] % 2 == 0, peak)
    assert [curve.beside["rows"] for curve in found.curves] == [2, 4, 5, 6]
    assert all(size % 2 == 0 for curve in found.curves for size in curve.sizes)


@pytest.mark.parametrize("dims", [(), (ROWS, Dim("tokens", 4))])
def test_without_an_end_nothing_is_told(dims):
    assert range_peaks(dims, lambda _: True, peak).curves == ()


def test_one_dim_is_one_curve():
    (curve,) = range_peaks((Dim("n", 3, 4),), lambda _: True, lambda shape: shape["n"]).curves
    assert (curve.sizes, curve.baseline_peak_bytes, curve.beside, curve.label()) == ((3, 4), (3, 4), {}, "")
