"""Batch norms that average over all batches so far count them in the program."""

from __future__ import annotations

import torch
from torch import nn

from frontends import steps
from support.step_checks import assert_like_eager, together_made


def small(norm):
    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6), norm(6), nn.ReLU(), nn.Linear(6, 2))
        return steps.simple(model, steps.sgd(model)), model

    return make


def counted(features):
    return nn.BatchNorm1d(features, momentum=None)


def without_weights(features):
    return nn.BatchNorm1d(features, momentum=None, affine=False)


def twice(features):
    shared = nn.BatchNorm1d(features, momentum=None)
    return nn.Sequential(shared, nn.Tanh(), shared)


def test_statistics_are_averages_over_all_batches():
    run = assert_like_eager(together_made(*map(small, (counted, without_weights, twice))), calls=5)
    assert run.counts.replans == 0


def test_the_functions_of_torch_are_their_own_again():
    before = torch.batch_norm
    assert_like_eager(small(counted), calls=1)
    assert torch.batch_norm is before
    assert "float" not in vars(torch.nn.modules.batchnorm)
