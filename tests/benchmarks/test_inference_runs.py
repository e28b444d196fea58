"""The benchmark of forwards on one image: what it runs, and what it says of it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import inference_runs


def test_the_forward_has_no_gradients_and_one_image():
    step, batch = inference_runs.forward(16)
    made = step(batch)
    assert made.shape == batch["images"].shape == (1, 3, 16, 16)
    assert not made.requires_grad


def test_a_row_says_where_a_prediction_is_exact():
    row = {
        "image": 512,
        "latency": 10,
        "parts": [6],
        "peak_share": 0.3012,
        "measured_allocator_peak_bytes": 2**24,
        "cpu_ratio": 1.05,
        "predicted_ratio": 1.1,
        "is_exact": True,
        "agrees": True,
        "plan_seconds": 6.4,
    }
    assert inference_runs.shown(row) == ["512", "10 %", "6", "0.301", "16.0", "1.05", "1.10", "yes", "6"]
    assert inference_runs.shown(row | {"agrees": False, "parts": []})[2:8:5] == ["whole", "no"]
    assert len(inference_runs.shown(row)) == len(inference_runs.COLUMNS)
