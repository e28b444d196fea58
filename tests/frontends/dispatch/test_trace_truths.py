"""Truths that are known while a step is traced: of constants, and of checks that only raise."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

from frontends import checks
from frontends.steps import batch, net, sgd, simple, update
from neaptide.errors import CaptureError
from neaptide.frontends.dispatch.answers import answer_that_goes_on
from neaptide.frontends.torch_step import capture_step
from programs.program import descending
from support.step_checks import assert_same_bits, planned
from support.together import together


def normal():
    model = net()
    optimizer = sgd(model)

    def loss_of(x):
        drawn = torch.distributions.Normal(model(x), 1.0).rsample()
        return -torch.distributions.Normal(x[:, :3], 2.0).log_prob(drawn).mean()

    return descending(optimizer, loss_of), batch()


def categorical():
    model = net()
    optimizer = sgd(model)

    def loss_of(x):
        actions = torch.distributions.Categorical(logits=model(x))
        return -actions.log_prob(actions.sample()).mean()

    return descending(optimizer, loss_of), batch()


def masked_encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    mask = nn.Transformer.generate_square_subsequent_mask
    return simple(lambda x: model(x, mask=mask(5)), sgd(model)), torch.randn(2, 5, 8)


@pytest.mark.parametrize("factory", [normal, categorical, checks.checked, masked_encoder])
def test_the_program_does_what_eager_does(factory):
    assert_same_bits(factory)


def test_a_check_that_fails_when_the_program_runs_raises_at_its_line():
    torch.manual_seed(0)
    step, x = checks.checked()
    run = planned(step, x)
    run(x)
    with pytest.raises(RuntimeError, match="check of the step failed: assert not") as caught:
        run(x * float("nan"))
    assert "checks.py" in "".join(caught.value.__notes__)


def test_a_check_that_was_false_at_the_capture_is_judged_at_each_call():
    step, x = checks.checked()
    run = planned(step, x * float("nan"))
    assert torch.isfinite(run(x))


@pytest.mark.parametrize("overwritten", [False, True])
def test_a_truth_that_hangs_on_a_mask_which_is_overwritten_is_no_constant(overwritten):
    model = net()
    optimizer = sgd(model)

    def step(x):
        mask = torch.ones(3, 3)
        if overwritten:
            mask[0].copy_(x[0, :3])
        scale = 2.0 if (mask == 1).all() else 3.0
        return update((model(x) * scale).square().mean(), optimizer)

    if overwritten:
        with pytest.raises(CaptureError, match="depends on the data"):
            capture_step(step, (batch(),))
    else:
        assert capture_step(step, (batch(),))


class Asked:
    """A truth value that notes what the code that asks for it says about the answers."""

    def __init__(self, answer):
        self.answer = answer
        self.found = None

    def __bool__(self):
        frame = sys._getframe(1)
        self.found = answer_that_goes_on(frame.f_code, frame.f_lasti)
        return self.answer


@together(
    ("function", "answer"),
    [
        (checks.asserts, True),
        (checks.asserts_not, False),
        (checks.raises, False),
        (checks.raises_else, True),
        (checks.raises_in_a_loop, False),
        (checks.raises_of_two, False),
        (checks.raises_one_of_two_errors, False),
        (checks.returns, True),
        (checks.chooses, None),
        (checks.raises_sometimes, None),
        (checks.raises_or_returns, None),
        (checks.converts, None),
        (checks.keeps, None),
    ],
)
def test_only_a_branch_that_raises_for_certain_has_a_known_answer(function, answer):
    asked = Asked(answer if answer is not None else True)
    try:
        function(asked)
    except ValueError:
        assert answer is None
    assert asked.found is answer
