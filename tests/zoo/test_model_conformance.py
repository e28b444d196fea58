"""What `zoo.model.ZooModel` promises of every model, and what plans of it keep: predicted peaks, eager's bits, rows of all operations."""

import importlib
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
from neaptide.zoo.catalogue import MODELS
from neaptide.zoo.model import COMMON_DEFAULTS
from support.together import together

PUBLISHED_PARAMETERS = {  # of the cited papers and their released models
    "resnet50": 25_557_032,
    "densenet121": 7_978_856,
    "unet2d": 35_746_307,
    "vit": 86_567_656,
    "gpt2": 124_439_808,
    "gptneo": 1_315_575_808,
    "llama": 1_235_814_400,
}
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


def closed_over(step, kind):
    (found,) = (cell.cell_contents for cell in step.__closure__ if isinstance(cell.cell_contents, kind))
    return found


def run_two_steps(spec):
    """Losses of two steps, and the model before and after."""
    step, batch = zoo.factory(spec)()
    model = closed_over(step, torch.nn.Module)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    inputs = {name: t.clone() for name, t in batch.items()}
    losses = torch.stack([step(batch), step(batch)])
    assert all(torch.equal(batch[name], inputs[name]) for name in batch)
    return losses, before, model


@together("name", zoo.names(), quick=("mlp", "gpt2", "lstm", "unet2d"))
def test_every_size_gives_exactly_the_options_that_building_reads(name, monkeypatch):
    training = importlib.import_module("neaptide.zoo.training")
    read = set()

    class Recorded(training.Sizes):
        def __getattribute__(self, option):
            read.add(option)
            return super().__getattribute__(option)

    monkeypatch.setattr(training, "Sizes", Recorded)
    zoo.factory(name)()
    assert tuple(MODELS[name].sizes) == zoo.SIZES
    for size in zoo.SIZES:
        assert {*MODELS[name].sizes[size], *COMMON_DEFAULTS} == read - {"__dict__", "__class__"}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", zoo.names())
def test_two_tiny_steps_train_and_repeat_bitwise(name, precision):
    skip_without_kernel(name, precision)
    losses, before, model = run_two_steps(f"{name}@tiny,{precision}")
    assert not losses.requires_grad
    assert losses.isfinite().all()
    assert losses[0] != losses[1]
    assert model.training
    assert all(p.grad is None for p in model.parameters())
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    changed = [not torch.equal(before[key], p) for key, p in model.named_parameters()]
    assert sum(changed) >= 0.9 * len(changed)
    torch.rand(3)  # whatever happened to the generator in between does not matter
    again, *_ = run_two_steps(f"{name}@tiny,{precision}")
    assert torch.equal(losses, again)


@together("name", zoo.names())
def test_paper_size_builds_on_meta(name):
    step, batch = zoo.factory(f"{name}@paper", device="meta")()
    model = closed_over(step, torch.nn.Module)
    tensors = [*model.parameters(), *model.buffers(), *batch.values()]
    assert {t.device.type for t in tensors} == {"meta"}
    count = sum(p.numel() for p in model.parameters())
    assert count == PUBLISHED_PARAMETERS.get(name, count)


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
    code = f"import test_model_conformance as t; t.torch.set_num_threads(1); t.check_everything('{name}@{size},{precision}')"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=Path(__file__).parent,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
