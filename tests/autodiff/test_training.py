"""A model that trains itself in the stock runtime: it follows PyTorch, and fits in the memory that is promised."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from onnx import numpy_helper

import neaptide.onnx
from neaptide.frontends.onnx.reader import read_model
from neaptide.lower.onnx.writer import write_model
from neaptide.outcome import Limits
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.portfolio import best_order
from onnx_training import lenet, parameters, problem_in_place, training_step, two_convolutions

RATE = 0.05


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _torch_loss(p: list[torch.Tensor], x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    for weight, bias in ((p[0], p[1]), (p[2], p[3])):
        x = F.relu(F.max_pool2d(F.conv2d(x, weight, bias, padding=1), 2))
    return F.cross_entropy(F.linear(x.flatten(1), p[4], p[5]), label)


def test_a_hundred_steps_of_training_follow_torch() -> None:
    model = lenet()
    names = parameters(model)
    session = _session(training_step(model, RATE))
    held = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    own = [torch.tensor(held[name], requires_grad=True) for name in names]
    optimizer = torch.optim.SGD(own, lr=RATE)
    random = np.random.default_rng(0)
    for _ in range(100):
        x = random.normal(size=(1, 1, 28, 28)).astype(np.float32)
        label = random.integers(0, 10, 1)
        loss, *updated = session.run(None, {"input_0": x, "label": label, **held})
        held = dict(zip(names, updated, strict=True))
        optimizer.zero_grad()
        expected = _torch_loss(own, torch.tensor(x), torch.tensor(label))
        expected.backward()
        optimizer.step()
        assert loss == pytest.approx(expected.item(), abs=1e-4)
    for name, tensor in zip(names, own, strict=True):
        np.testing.assert_allclose(held[name], tensor.detach(), atol=1e-4)


def test_a_step_of_training_needs_less_than_80_kib_with_its_weights() -> None:
    graph = read_model(training_step(lenet(), RATE)).graph
    problem = problem_in_place(graph)
    assert (
        sum(problem.storages[s].nbytes for s, first in enumerate(problem.from_start) if first)
        == 4 * 9098 + 3136 + 8
    )
    found = best_order(problem, Limits(work=100_000)).require()
    assert evaluate_order(problem, range(problem.op_count)).peak_bytes < 125 * 1024
    assert found.peak_bytes <= 80 * 1024


def test_a_planned_step_keeps_parameters_as_inputs_with_defaults() -> None:
    given = training_step(lenet(), RATE)
    written = write_model(read_model(given))
    x = {"input_0": np.zeros((1, 1, 28, 28), np.float32), "label": np.asarray([3])}
    for one, other in zip(_session(given).run(None, x), _session(written).run(None, x), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert {v.name for v in written.graph.input} == {v.name for v in given.graph.input}


@pytest.mark.slow
def test_a_network_in_parts_of_its_channels_trains_within_700_kib() -> None:
    whole = two_convolutions()
    parts = neaptide.onnx.plan(whole, passes=("channel_fission_8",), peak="min").to_model()
    peaks, losses = [], []
    random = np.random.default_rng(0)
    given = {"input_0": random.normal(size=(1, 1, 125, 90)).astype(np.float32), "label": np.asarray([1])}
    for model in (whole, parts):
        step = training_step(model, RATE)
        problem = problem_in_place(read_model(step).graph)
        peaks.append(best_order(problem, Limits(work=100_000)).require().peak_bytes)
        session, names = _session(step), parameters(model)
        first, *updated = session.run(None, given)
        losses.append((first, session.run(["loss"], {**given, **dict(zip(names, updated, strict=True))})[0]))
    assert peaks[0] > 2000 * 1024
    assert peaks[1] <= 700 * 1024
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
