"""Planned steps in objects that are copied: the copy trains its own model, under a plan of its own."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import neaptide
from frontends.steps import batch, net, sgd
from neaptide.errors import UsageError
from support.step_checks import planned


class Trainer:
    """Holds its model and the planned step of its own method, as trainers do that are averaged or searched with."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = net()
        self.optimizer = sgd(self.model)
        self.fast = neaptide.compile_step(self.step, budget="100%", time_limit_s=1.0)

    def step(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def test_the_copy_trains_its_own_model():
    trainer, reference, x = Trainer(), Trainer(), batch()
    other = copy.deepcopy(trainer)
    assert other.fast is not trainer.fast
    assert torch.equal(other.fast(x), reference.step(x))
    assert torch.equal(other.model[0].weight, reference.model[0].weight)
    assert not torch.equal(trainer.model[0].weight, reference.model[0].weight)
    assert trainer.fast.counts.planned == 0


def test_a_plan_for_its_own_objects_is_not_copied():
    run = planned(Trainer().step, batch())
    with pytest.raises(UsageError, match="cannot be copied"):
        copy.deepcopy(run)


def test_pickling_says_what_to_do():
    with pytest.raises(UsageError, match="cannot be pickled"):
        pickle.dumps(Trainer().fast)
