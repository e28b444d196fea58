"""The table beside MAGIS: what is compared with what, on a step small enough for a test."""

import json
import sys
from pathlib import Path

import pytest

from recorded_play import perceptron

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import magis_zoo  # noqa: E402
import magis_zoo_cases  # noqa: E402


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "magis_zoo").mkdir()
    # Products that take far longer than a call, so that parts lose little time.
    form = perceptron(batch=32, width=2048, layers=3)
    (tmp_path / "magis_zoo" / "unet.json").write_text(json.dumps(form))
    return tmp_path


def test_a_net_becomes_a_row_of_the_table(folder):
    row = magis_zoo_cases.solve("unet", folder, None, 400)
    assert [made["parts"] for made in row["micro_batch"]] == [2, 4, 8, 16, 32]
    for limit in magis_zoo.LIMITS:
        ours, whole = row["ours"][limit], magis_zoo.best_whole_step(row, limit)
        assert ours["overhead"] <= magis_zoo_cases.added(limit) + 1e-9
        assert row["magis"][limit]["overhead"] <= magis_zoo_cases.added(limit) + 1e-6
        assert row["magis"][limit]["peak_share"] <= 1.0
        assert ours["peak_share"] <= (1.0 if whole is None else whole["peak_share"])
    shown = magis_zoo.show([row, {"net": "vit", "failure": "took too long"}])
    assert "unet" in shown
    assert "vit failed: took too long" in shown


def row_of(ours, *wholes):
    return {
        "net": "bert",
        "ours": {"+10%": {"peak_share": ours[0], "overhead": ours[1]}},
        "micro_batch": [
            {"parts": 2 << k, "peak_share": peak, "overhead": time} for k, (peak, time) in enumerate(wholes)
        ],
    }


def test_ours_must_be_in_time_and_not_above_any_other():
    assert magis_zoo.is_on_or_below(row_of((0.18, 0.09), (0.2, 0.05), (0.1, 0.11)), "+10%")
    assert not magis_zoo.is_on_or_below(row_of((0.18, 0.11)), "+10%")  # too slow
    assert not magis_zoo.is_on_or_below(row_of((0.21, 0.09), (0.2, 0.05)), "+10%")  # a whole step is lower
    assert not magis_zoo.is_on_or_below(row_of((0.195, 0.09)), "+10%")  # the released search is


def test_what_was_found_for_a_shorter_time_counts_for_a_longer_one():
    row = row_of((0.18, 0.09))
    row["ours"]["+5%"] = {"peak_share": 0.15, "overhead": 0.04}
    assert magis_zoo.best_found(row, "ours", "+10%")["peak_share"] == 0.15
    row["ours"]["+5%"] = {"peak_share": 0.3, "overhead": 0.04}
    assert magis_zoo.best_found(row, "ours", "+10%")["peak_share"] == 0.18
    assert magis_zoo.best_found(row, "ours", "+5%")["peak_share"] == 0.3
