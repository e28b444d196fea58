from __future__ import annotations

import logging
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from chain_play import chain_step
from neaptide.planner.recompute.chain.blocks import find_blocks
from neaptide.planner.recompute.units import forward_units
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.training_steps import conv_step, pooled_step, toy_registry, transformer_step
from planner_problems import compiled
from strategies import graphs
from together import together


def blocks_of(step, most):
    return find_blocks(forward_units(step, range(step.node_count)), most)


def check(chain):
    """Blocks share out units and the backward, and what enters a block is what crosses into it."""
    forward, blocks = chain.forward, chain.blocks
    made = [u for block in blocks for u in block.units]
    assert made == [u.creator for u in forward.units.values() if not u.is_pinned]
    assert blocks[-1].first == forward.turning
    assert blocks[0].end == len(forward.order)
    for before, block in pairwise(blocks):
        assert before.first == block.end
        assert before.leaving == block.entering
    assert blocks[0].entering == ()
    assert blocks[-1].leaving == ()
    for block in blocks:
        at_hand = {*block.units, *block.entering}
        for unit in block.units:
            assert all(o in at_hand or forward.units[o].is_pinned for o in forward.units[unit].operands)
        for place in range(block.first, block.end):
            reads = forward.reads[place - forward.turning]
            assert all(u in at_hand or forward.units[u].is_pinned for u in reads)


@together("most", [4, 16, 200])
@together(
    "made",
    [transformer_step(layers=6), transformer_step(layers=6, dropout=True), conv_step(), pooled_step()],
    ids=["transformer", "dropout", "conv", "pooled"],
)
def test_blocks_of_training_steps(made, most):
    check(blocks_of(compiled(made), most))


@given(st.data(), st.sampled_from([2, 16, 100]))
def test_blocks_of_any_graph(data, most):
    graph = data.draw(graphs(min_nodes=1))
    check(blocks_of(compile_problem(graph, toy_registry()), most))


def test_equal_layers_are_found_once(caplog):
    with caplog.at_level(logging.INFO, logger="neaptide.planner.recompute.chain.blocks"):
        chain = blocks_of(compiled(transformer_step(layers=12)), 16)
    assert len(chain.blocks) >= 10
    assert chain.distinct <= 4
    assert f"{len(chain.blocks)} blocks, {chain.distinct} of them distinct" in caplog.text


def test_more_cuts_give_more_blocks():
    step = chain_step(60)
    few, many = blocks_of(step, 5), blocks_of(step, 30)
    assert 3 <= len(few.blocks) <= 8
    assert len(few.blocks) < len(many.blocks) <= 45


def test_blocks_of_other_sizes_or_times_are_not_equal():
    step = compiled(transformer_step(layers=4, tokens=64))
    other = compiled(transformer_step(layers=4, tokens=128))
    assert blocks_of(step, 8).distinct == blocks_of(other, 8).distinct
    chain = blocks_of(compiled(conv_step(blocks=6)), 8)
    assert 1 < chain.distinct < len(chain.blocks)
