"""What the benchmark of really run recomputation says about its rows, and what it keeps of them."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import model_rows
import recompute_zoo


def program(name: str, **row):
    ran = {
        "measured_allocator_peak_bytes": 2**20,
        "cpu_ratio": 1.1,
        "cpu_ratio_low": 1.0,
        "cpu_ratio_high": 1.2,
    }
    return {"program": name, "budget_bytes": 2**21, "bitwise_equal": True, "is_held": True} | ran | row


def model(*programs):
    return {"spec": "mlp@small", "seconds": 3.0, "cpu_seconds": {"timing": 2.0}, "programs": list(programs)}


PEER = program(
    "by block", budget_bytes=None, is_held=None, note="3 parts", plan_against_peer=[0.9, 0.8, 0.95]
)


def test_bars_are_met_when_all_programs_meet_them():
    found = recompute_zoo.bars([model(program("plan 50 %"), PEER, program("plan as by block"))])
    assert [met for *_, met in found] == [True, True, True]
    assert [what for _, what, _ in found] == ["2 of 2", "2 of 2", "1 of 1, 1 of them beyond doubt"]


@pytest.mark.parametrize(
    ("missed", "row"),
    [
        (0, program("plan 50 %", is_held=False)),
        (1, program("plan 50 %", bitwise_equal=False)),
        (2, PEER | {"plan_against_peer": [1.02, 0.98, 1.1]}),
    ],
)
def test_a_bar_that_is_missed_names_the_program(missed, row):
    found = recompute_zoo.bars([model(row)])
    assert [met for *_, met in found] == [number != missed for number in range(3)]
    assert f"mlp@small {row['program']}" in found[missed][1]


def test_a_peer_with_other_bits_is_no_miss_of_ours():
    found = recompute_zoo.bars([model(program("by block", budget_bytes=None, bitwise_equal=False))])
    assert all(met for *_, met in found)


def test_a_model_that_failed_misses_all_bars():
    failed = {"spec": "mlp@small", "failure": "no memory"}
    assert not any(met for *_, met in recompute_zoo.bars([failed]))
    assert "no memory" in recompute_zoo.text({"rows": [failed]})


def test_a_model_is_kept_and_taken_again_for_its_size_alone(tmp_path, monkeypatch):
    ran = []

    def run_part(_script, _one, spec, *_options, **_limits):
        ran.append(spec)
        return {"failure": "died"} if spec.startswith("lstm") else model(PEER)

    monkeypatch.setattr(model_rows, "run_part", run_part)
    asked = {"rounds": 3, "work": 10}
    for _ in range(2):
        result = recompute_zoo.collect(["mlp", "lstm"], tmp_path, keep=True, size="small", **asked)
    recompute_zoo.collect(["mlp"], tmp_path, keep=True, size="tiny", **asked)
    assert ran == ["mlp@small", "lstm@small", "lstm@small", "mlp@tiny"]
    assert [row.get("failure") for row in result["rows"]] == [None, "died"]
    assert json.loads(json.dumps(result))["repeats"] == 3
    assert "of a processor: timing 2 s" in recompute_zoo.text(result)
