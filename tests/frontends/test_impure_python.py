"""Python that answers differently from call to call: refused at its line, or its answer really varies when planned."""

from __future__ import annotations

import pytest
import torch

from frontends.impure_lines import HARMLESS, REFUSED, lines_of, step_of
from frontends.impure_steps import Steps
from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step
from support.step_checks import planned
from support.together import together


@pytest.fixture
def steps(tmp_path):
    made = Steps(tmp_path)
    yield made
    made.close()


def refused(steps, name, match=None):
    with pytest.raises(CaptureError, match=match) as caught:
        capture_step(step_of(steps, name), (torch.randn(5, 4),))
    where = caught.value.where or ""
    assert any(line in where for line in lines_of(name)), where
    return caught.value


@together(
    "name",
    [
        "clock_of_a_library",
        "counter_of_a_library_object",
        "operation_by_a_counter",
        "clock_behind_the_update",
    ],
    quick=(1, 2),
)
def test_two_programs_are_compared_as_they_are(steps, name):
    """With an optimizer that has state, the first step and the later ones are traced anyway."""
    steps.optimizer = torch.optim.SGD(steps.model.parameters(), lr=0.1, momentum=0.9)
    refused(steps, name, "another one at each call")


@together("name", REFUSED, parts=2, quick=range(0, 99, 2))
def test_impure_python_is_refused_at_its_line(steps, name):
    error = refused(steps, name)
    assert error.why
    assert error.next_step


@together("name", HARMLESS, quick=range(0, 99, 3))
def test_harmless_python_is_captured_and_agrees_with_eager(name, tmp_path, monkeypatch):
    batches = [torch.randn(5, 4) for _ in range(3)]
    results, left = [], []
    for folder, wrap in (("eager", lambda step: step), ("planned", lambda step: planned(step, batches[0]))):
        monkeypatch.delenv("NEAPTIDE_TEST_LEVEL", raising=False)
        (tmp_path / folder).mkdir()
        steps = Steps(tmp_path / folder)
        run = wrap(step_of(steps, name))
        torch.manual_seed(7)
        losses = []
        for call, batch in enumerate(batches):
            losses.append(run(batch))
            monkeypatch.setenv("NEAPTIDE_TEST_LEVEL", str(call + 2))
        results.append([*losses, *steps.model.parameters()])
        left.append([(type(number), number) for number in steps.left()])
        steps.close()
    assert left[0] == left[1]
    assert all(torch.equal(eager, found) for eager, found in zip(*results, strict=True))
