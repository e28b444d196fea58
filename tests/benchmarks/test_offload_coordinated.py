"""Recomputation, parts and stays on the host together: what the table says of a step that is small enough for a test."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import offload_coordinated  # noqa: E402


@pytest.fixture(scope="module")
def row():
    return {"spec": "mlp@tiny"} | offload_coordinated.planned("mlp@tiny,batch=512", 200)


@pytest.mark.slow
def test_each_way_keeps_to_the_latency_and_moves_only_where_it_may(row):
    for way, (_, host) in offload_coordinated.WAYS.items():
        made = row["ways"][way]
        assert made["seconds"] <= 1.1 * row["baseline_seconds"] * (1 + 1e-9)
        assert made["peak_with_workspace_bytes"] <= row["baseline_bytes"]
        assert bool(made["stays"]) == bool(made["host_bytes"])
        assert host is not None or not made["stays"]
    assert row["ways"]["recompute + offload"]["loops"] == 0


def test_all_three_are_below_on_or_above_the_lower_of_both_pairs(row):
    def with_peak(share):
        ways = row["ways"] | {
            way: row["ways"][way] | {"peak_with_workspace_bytes": part * row["baseline_bytes"]}
            for way, part in zip(offload_coordinated.WAYS, (0.5, 0.4, share), strict=True)
        }
        return row | {"ways": ways}

    found = [offload_coordinated.verdict(with_peak(share)) for share in (0.39, 0.4, 0.41)]
    assert found == ["below", "on", "above"]


def test_nets_that_failed_or_were_not_run_are_told(row):
    rows = [row | {"spec": "unet@paper"}, {"spec": "vit@paper", "failure": "killed"}]
    (line,) = offload_coordinated.lines(rows)
    assert len(line) == len(offload_coordinated.COLUMNS)
    assert line[0] == "unet"
    said = offload_coordinated.said({"rows": rows, "settings": {"work": 1000}})
    assert "Each search has 1,000 units of work." in said
    assert said.endswith("Not run: unetpp, resnet50, vit, bert, gptneo, btlm.")
