from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.recompute.chain.blocks import BlockChain, find_blocks
from neaptide.planner.recompute.chain.options import chain_costs, everything, nothing
from neaptide.planner.recompute.chain.plans import carry_out, chain_of, costs_of, parts_of
from neaptide.planner.recompute.units import forward_units
from neaptide_corpus.training_steps import conv_step, transformer_step
from planner_problems import compiled

STEPS = [transformer_step(layers=8), conv_step(blocks=8)]


def chain_of_step(step, most=12):
    return find_blocks(forward_units(step, range(step.node_count)), most)


@pytest.mark.parametrize("made", STEPS, ids=["transformer", "conv"])
def test_more_bytes_held_is_less_time_and_the_extremes_are_there(made):
    step = compiled(made)
    chain = chain_of_step(step)
    costs = chain_costs(step, chain)
    for block, options in zip(chain.blocks, costs.options, strict=True):
        least, most = nothing(chain.forward, block), everything(chain.forward, block)
        assert min(o.nbytes for o in options) == least.nbytes
        assert min(o.backward_s for o in options) == most.backward_s == 0.0
        assert any(not o.kept for o in options)
        assert all(least.nbytes <= o.nbytes <= most.nbytes for o in options)
        assert all(o.backward_s <= least.backward_s * (1 + 1e-9) for o in options)


@pytest.mark.parametrize("made", STEPS, ids=["transformer", "conv"])
def test_charges_of_one_option_are_those_of_the_whole_step(made):
    """All blocks but one hold everything: the seconds of the option are what the plan takes longer."""
    step = compiled(made)
    chain = chain_of_step(step)
    costs = chain_costs(step, chain)
    problem = PlanningProblem(step, 0)
    index = len(chain.blocks) // 2
    for option in costs.options[index]:
        held = [
            {
                unit
                for other, block in enumerate(chain.blocks[: phase + 1])
                for unit in (option.kept if other == index else block.reads)
            }
            | {unit for block in chain.blocks[: phase + 2] for unit in block.entering}
            for phase in range(len(chain.blocks))
        ]
        guard = LimitGuard(Limits())
        found = carry_out(problem, chain.forward, parts_of(chain, held), guard, "test")
        assert found.seconds - step.baseline_seconds == pytest.approx(option.backward_s)


def test_distinct_blocks_are_solved_once(caplog):
    step = compiled(transformer_step(layers=10))
    chain = chain_of_step(step, 16)
    with caplog.at_level(logging.INFO, logger="neaptide.planner.recompute.chain.options"):
        costs = chain_costs(step, chain)
    assert f"options of {chain.distinct} of {len(chain.blocks)} blocks" in caplog.text
    kind = max(set(chain.kinds), key=chain.kinds.count)
    same = [costs.options[i] for i, k in enumerate(chain.kinds) if k == kind]
    assert len({tuple(o.nbytes for o in options) for options in same}) == 1
    assert len({tuple(o.kept for o in options) for options in same}) == len(same)


def test_the_number_of_options_is_limited():
    step = compiled(transformer_step(layers=8))
    chain = chain_of_step(step, 3)
    assert max(len(o) for o in chain_costs(step, chain).options) > 4
    assert max(len(o) for o in chain_costs(step, chain, most=4).options) == 4


def test_blocks_are_solved_once_for_all_budgets_and_strategies_of_a_search(caplog):
    step = compiled(transformer_step(layers=10))
    problem = PlanningProblem(step, step.lower_bound_bytes)
    with caplog.at_level(logging.INFO, logger="neaptide.planner.recompute"):
        for budget in (problem.budget_bytes, 2 * problem.budget_bytes):
            same = replace(problem, budget_bytes=budget)
            chain = chain_of(same, 8)
            assert isinstance(chain, BlockChain)
            assert costs_of(same, chain) is costs_of(same, chain)
    assert caplog.text.count("options of") == 4
    assert caplog.text.count("taken from an earlier search") == 3
