"""What the benchmark of steps in parts says about its rows, and that its peers compute what eager does."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import fission_runs
import fission_steps
from bench_record import save
from chosen_rounds import parted, rounds_of_both
from hand_micro_batches import CannotSplitError, by_hand
from neaptide import zoo
from neaptide.runtime.comparing.contestants import Measured
from neaptide.runtime.measuring.meter import StepMeasurement
from neaptide.runtime.measuring.timing import StepTimes

ROUNDING = 1e-5


def ran(name, peak, ratio, **row):
    measured = {"measured_allocator_peak_bytes": peak, "peak_share": peak / 100, "cpu_ratio": ratio}
    interval = {"cpu_ratio_low": ratio, "cpu_ratio_high": ratio}
    return {"program": name} | measured | interval | row


def ours(peak, ratio):
    exact = {"predicted_above": 0, "predicted_with_workspace_above": 0, "predicted_ratio": ratio}
    return ran("ours for 1.10", peak, ratio, kind="ours", chosen_for=[10], **exact)


def model(*programs):
    return {"spec": "mlp@tiny", "latencies": [10], "programs": [ran("eager", 100, 1.0), *programs]}


def test_the_lowest_of_the_others_within_the_time_is_what_ours_has_to_reach():
    (found,) = fission_runs.envelope(model(ran("a", 30, 1.09), ran("b", 20, 1.2), ours(30, 1.0)))
    assert (found["least_other"], found["is_on_or_below"]) == ("a", True)


def test_plans_of_the_others_count_for_the_limits_that_they_were_chosen_for():
    theirs = [
        ran("a", 40, 1.0, kind="recompute", chosen_for=[10]),
        ran("b", 20, 1.0, kind="recompute", chosen_for=[25]),
    ]
    row = model(*theirs, ours(30, 1.0))
    (found,) = fission_runs.envelope(row)
    assert (found["least_other"], found["is_on_or_below"], found["is_on_or_below_any"]) == ("a", True, False)
    said = fission_runs.on_or_below_line([row, {"failure": "no memory"}])
    assert "in 1 of 1 cases" in said
    assert said.endswith("reported within that time in 0.")


@pytest.mark.parametrize(("peak", "ratio"), [(31, 1.0), (10, 1.2)])
def test_a_plan_above_another_or_out_of_time_is_said_to_be(peak, ratio):
    made = model(ran("a", 30, 1.0), ours(peak, ratio))
    (found,) = fission_runs.envelope(made)
    assert not found["is_on_or_below"]
    assert "NOT" in fission_runs.verdict("mlp@tiny", found)


def test_a_prediction_is_exact_in_both_peaks_or_says_by_how_many_bytes_not():
    assert fission_runs.exactness(ours(1, 1.0)) == "yes"
    assert fission_runs.exactness(ours(1, 1.0) | {"predicted_above": -8}) == "-8 / +0"


def test_what_was_not_run_is_named():
    rows = [
        {"spec": "mlp@small", "latencies": [0, 10]},
        {"spec": "gpt2@small", "failure": "no memory"},
        {"spec": "mlp@tiny", "latencies": [0, 5, 10, 25]},
    ]
    missing = fission_runs.missing(rows, "small")
    assert (missing["mlp"], missing["gpt2"]) == ([5, 25], [0, 5, 10, 25])
    assert "mlp at +5, +25 %" in fission_runs.left_out(missing)


def test_steps_that_were_not_run_again_stay_in_the_result_in_one_order(tmp_path):
    path = tmp_path / "fission_runs.json"
    for name in ("vit", "mlp"):
        rows = [{"spec": f"{name}@small", "latencies": [0], "programs": []}]
        save(path.stem, fission_runs.together(rows, path, "small", 7), tmp_path)
    again = [{"spec": "vit@small", "failure": "no memory"}]
    found = fission_runs.together(again, path, "small", 7)
    assert [row["spec"] for row in found["rows"]] == ["mlp@small", "vit@small"]
    assert found["rows"][1] == again[0]
    assert found["settings"]["missing"]["mlp"] == [5, 10, 25]


def test_predictions_near_what_was_measured_are_counted():
    eager = ran("eager", 100, 1.0, cpu_seconds=1.0)
    near = ran("a", 50, 1.0, cpu_seconds=1.0, predicted_seconds=1.09, predicted_ratio=1.04)
    far = ran("b", 50, 1.0, cpu_seconds=1.0, predicted_seconds=0.8, predicted_ratio=0.9)
    row = {"predicted_baseline_seconds": 1.2, "programs": [eager, near, far, {"program": "not run"}]}
    assert fission_runs.near([row, {"failure": "no memory"}]) == (1, 3, 1, 2)
    # The processor took 0.85 times as long while they ran, and so does all that is predicted.
    assert fission_runs.near([row | {"pace_factor": 0.85}]) == (2, 3, 1, 2)


def losses(run, *args):
    torch.manual_seed(0)
    return [float(run(*args)) for _ in range(2)]


@pytest.mark.parametrize("spec", ["encoder_decoder@tiny", "odd_convnext@tiny", "lstm@tiny", "unet2d@tiny"])
def test_micro_batches_by_hand_have_the_losses_of_the_whole(spec):
    own = spec.partition("@")[0] in fission_steps.NAMES
    build = fission_steps.factory(spec) if own else zoo.factory(spec)
    step, batch = build()
    again, same = build()
    found = losses(by_hand(spec, step, batch, 2))
    assert found == pytest.approx(losses(again, same), rel=ROUNDING)


@pytest.mark.parametrize(
    ("spec", "parts"), [("resnet50@tiny", 2), ("long_context@tiny", 2), ("unet@tiny", 3)]
)
def test_what_cannot_be_split_by_hand_says_so(spec, parts):
    own = spec.partition("@")[0] in fission_steps.NAMES
    step, batch = (fission_steps.factory(spec) if own else zoo.factory(spec))()
    with pytest.raises(CannotSplitError, match="cannot split"):
        by_hand(spec, step, batch, parts)


def test_every_other_round_chooses_and_the_others_are_reported():
    peaks = StepMeasurement(0, 0, 0, (), None)
    made = Measured(peaks, StepTimes((1.0, 2.0, 3.0, 4.0), (5.0, 6.0, 7.0, 8.0)))
    trial, reported = parted({"eager": made})
    assert (trial["eager"].times.cpu_s, reported["eager"].times.cpu_s) == ((5.0, 7.0), (6.0, 8.0))
    assert (trial["eager"].times.wall_s, reported["eager"].times.wall_s) == ((1.0, 3.0), (2.0, 4.0))
    assert rounds_of_both(2) == 4
