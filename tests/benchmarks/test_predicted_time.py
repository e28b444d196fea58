"""The benchmark of predicted times: what is run of a model, and that each program gets a prediction and a measurement."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def predicted_time(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import predicted_time

    monkeypatch.setattr(predicted_time, "SECONDS_A_ROUND", 0.0)
    monkeypatch.setattr(predicted_time, "PLAN_S", 0.5)
    threads = torch.get_num_threads()
    yield predicted_time
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_each_program_of_a_model_is_predicted_and_measured(predicted_time):
    found = predicted_time.measure("mlp@tiny", 1)
    assert [made["name"] for made in found["programs"]] == ["baseline", "recompute", "in 4 parts"]
    for made in found["programs"]:
        assert made["predicted_seconds"] > 0
        assert 0 < made["program_seconds"] <= made["step_seconds"]
    assert found["programs"][0]["measured_ratio"] == found["programs"][0]["predicted_ratio"] == 1.0
