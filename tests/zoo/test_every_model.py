"""Every zoo model: predicted peaks are the measured ones, numbers have eager's bits, every operation has a row."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from frontends.kernels.kernel_support import skip_without_kernel
from neaptide import zoo
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.outcome import Limits
from neaptide.policy.prepared_step import PreparedStep, prepare
from neaptide.runtime.comparing import contestants, verification
from neaptide.runtime.measuring.meter import LiveBytesMeter

SEED = 0
PEAK = "75%"
# In changes tried, not seconds: the plan is then the same on every machine. Enough to recompute and move updates.
SEARCH = Limits(work=500, seed=SEED)
ALLOCATOR_TOLERANCE = 0.01
ALIKE = {
    "unet2d",
    "bert",
    "gptneo",
    "btlm",
    "unetpp",
    "densenet121",
    "vit",
    "llama",
    "unet",
    "resnet50",
    "mlp",
}  # another model has their kinds of operations, in fewer seconds
TINY = [pytest.param(name, marks=pytest.mark.slow if name in ALIKE else ()) for name in zoo.names()]


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def prepared_step(spec: str) -> PreparedStep:
    step, batch = contestants.build(zoo.factory(spec), SEED)
    return prepare(step, (batch,), name=spec)


def variants_of(prepared: PreparedStep):
    """(name, variant, predictions) of the program order and of a plan."""
    found = prepared.plan(Ask(Budget(peak=PEAK), limits=SEARCH))
    predicted = found.plan.program("steady").predictions
    baseline = predicted.baseline_peak_with_workspace_bytes
    assert predicted.peak_with_workspace_bytes < baseline
    yield "baseline", prepared.baseline_variant(), predicted.baseline_peak_bytes, baseline
    yield "plan", found.variant, predicted.peak_bytes, predicted.peak_with_workspace_bytes


def check_rows(prepared: PreparedStep) -> None:
    for program in prepared.captured.programs:
        assert program.unknown_ops == ()


def check_peak(spec: str, variant, predicted_bytes: int) -> None:
    """A second step holds the bytes that were predicted; the first makes the optimizer state."""
    contestant = contestants.planned_contestant("", zoo.factory(spec), SEED, contestants.rebind(variant))
    contestant.run()
    with LiveBytesMeter(contestant.persistent()) as meter:
        contestant.run()
    assert meter.unregistered == ()
    assert meter.peak_bytes == predicted_bytes


def check_allocator(spec: str, variant, predicted_bytes: int) -> None:
    contestant = contestants.planned_contestant("", zoo.factory(spec), SEED, contestants.rebind(variant))
    measured = contestants.measure([contestant], repeats=0)[""].memory.measured_allocator_peak_bytes
    assert measured == pytest.approx(predicted_bytes, rel=ALLOCATOR_TOLERANCE)


def check_numbers(spec: str, variant, expected) -> None:
    outcome, _ = verification.verify_planned(zoo.factory(spec), SEED, contestants.rebind(variant), expected)
    assert outcome.bitwise_equal, (outcome.max_abs_diff, outcome.worst)


@pytest.mark.parametrize("name", TINY)
def test_tiny_model_keeps_predicted_bytes_and_eager_bits(name):
    spec = f"{name}@tiny"
    prepared = prepared_step(spec)
    check_rows(prepared)
    expected = verification.verify_eager(zoo.factory(spec), SEED)
    for _, variant, predicted_bytes, _ in variants_of(prepared):
        check_peak(spec, variant, predicted_bytes)
        check_numbers(spec, variant, expected)


def check_everything(spec: str) -> None:
    """What the fast test checks, and the allocator."""
    prepared = prepared_step(spec)
    check_rows(prepared)
    expected = verification.verify_eager(zoo.factory(spec), SEED)
    for _, variant, predicted_bytes, with_workspace_bytes in variants_of(prepared):
        check_peak(spec, variant, predicted_bytes)
        check_allocator(spec, variant, with_workspace_bytes)
        check_numbers(spec, variant, expected)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("size", ["tiny", "small"])
@pytest.mark.parametrize("name", zoo.names())
def test_model_of_every_size_and_precision(name, size, precision):
    """In a process of its own: `small` models would otherwise leave their memory to each other."""
    skip_without_kernel(name, precision)
    code = f"import test_every_model as t; t.torch.set_num_threads(1); t.check_everything('{name}@{size},{precision}')"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=Path(__file__).parent,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
