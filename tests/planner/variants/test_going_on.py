"""The search goes on from the best variant: regions in parts beside each other, each step of it no worse than the last."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neaptide
from neaptide.ask import Ask
from neaptide.outcome import Limits
from neaptide.policy.prepared_step import prepare
from support.steps import trained

LIMITS = {"time_limit_s": None, "work_limit": 1000}
TOKENS, WIDTH, WORDS = 96, 8, 300


class OneSequence(nn.Module):
    """Wide blocks and wider logits of one sequence; sums over all tokens keep the blocks apart."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))
                for _ in range(2)
            ]
        )
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x).cumsum(1)
        return self.head(self.norm(x)).flatten(0, 1)


def sequence_step():
    torch.manual_seed(0)
    model = OneSequence()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    step = trained(optimizer, lambda batch: F.cross_entropy(model(batch[0]), batch[1].flatten()))
    return step, (torch.randn(1, TOKENS, WIDTH), torch.randint(0, WORDS, (1, TOKENS)))


def planned(**options):
    step, batch = sequence_step()
    budget = neaptide.Budget(None, latency=3600.0)  # time is no limit: what it takes depends on the machine
    return neaptide.plan(step, batch, budget=budget, numerics="close", **options)


@pytest.fixture(scope="module")
def plan():
    return planned(**LIMITS)


@pytest.mark.slow
def test_blocks_are_split_behind_the_logits(plan):
    rules = [rewrite.rule for rewrite in plan.programs[0].rewrites]
    # The loss and its mean; two blocks, each with its backward; what costs nothing comes last, in the step and in every part.
    chosen = ["mean_to_sum", "fission", "rematerialisation", *["fission"] * 4]
    assert rules[: len(chosen)] == chosen
    assert set(rules[len(chosen) :]) <= {"redundant_copies", "accumulate_in_gemm", "in_place"}
    made = plan.programs[0].predictions
    # One loop leaves a third: the blocks, or the logits, whole.
    assert made.peak_with_workspace_bytes < 0.2 * made.baseline_peak_with_workspace_bytes


@pytest.mark.slow
def test_it_runs_as_predicted_and_close_to_eager(plan, tmp_path):
    plan.save(tmp_path / "plan.json")
    report = neaptide.run(sequence_step, str(tmp_path / "plan.json"), verify=True)
    assert report.predicted_peak_bytes == report.measured_peak_bytes
    assert max(report.max_abs_diff.values()) < 1e-5


def searched(limits, interrupt=None):
    """The plan of the step by prices that do not depend on the machine."""
    step, batch = sequence_step()
    prepared = prepare(step, (batch,), run_operations=False)
    budget = neaptide.Budget(None, latency=3600.0)
    options = Ask(budget, limits=limits, numerics="close", interrupt=interrupt)
    return prepared.plan(options).plan.programs[0]


def test_an_interrupt_keeps_the_best_so_far():
    stop = threading.Event()
    stop.set()
    made = searched(Limits(5.0), stop).predictions
    assert made.peak_with_workspace_bytes <= made.baseline_peak_with_workspace_bytes
