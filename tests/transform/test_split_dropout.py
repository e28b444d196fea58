"""Masks that are drawn by themselves: the bits of the fused dropout, and the generator as it leaves it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.errors import RewriteError
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ir.schedule import Schedule
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.ops.dropouts import APPLY_MASK, DRAW, FUSED_DROPOUT, UNFILLED_LIKE, kept_factor
from neaptide.runtime.calls.executor import Executable
from neaptide.transform.rewrite import Rewrite, apply_rule
from neaptide.transform.rules import RULES
from support.drawn import examples
from support.symbolic_steps import symbolised
from support.together import together
from support.torch_programs import Recorder
from transform.fission_play import last_of, refused

RULE = RULES["split_dropout"]
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
CHANCES = (0, 0.0, 0.1, 1 / 3, 0.7, 1.0)
SEED = 3


def bits(tensor):
    return tensor.contiguous().flatten().view(torch.uint8)


def run(graph, inputs):
    torch.manual_seed(SEED)
    program = lower(graph, Schedule.program_order(graph), registry())
    made = Executable(program, name="dropped").run([item.clone() for item in inputs])
    return [bits(tensor) for tensor in made], [t.stride() for t in made], torch.get_rng_state()


def dropout(x, chance=0.3, train=True, outputs=(0, 1)):
    r = Recorder()
    made = r.call(FUSED_DROPOUT, r.input(x, "x"), chance, train)
    return r.finish([made[place] for place in outputs])


def operand(dtype, layout):
    """With numbers that a product treats in a way of its own."""
    x = torch.randn(24, 10, generator=torch.Generator().manual_seed(0)).to(dtype)
    x.view(-1)[:6] = torch.tensor([torch.inf, -torch.inf, torch.nan, -0.0, 1e-40, 6e4]).to(dtype)
    return {"rows": x, "columns": x.t(), "gaps": x[:, ::2]}[layout]


@together("layout", ["rows", "columns", "gaps"])
@together("dtype", DTYPES, ids=str)
def test_results_masks_and_the_generator_are_those_of_the_fused_operation(dtype, layout):
    x = operand(dtype, layout)
    for chance, train in product(CHANCES, (True, None)):
        graph = dropout(x, chance, train)
        made = apply_rule(graph, registry(), RULE).edited.graph
        assert [node.op for node in made.nodes] == [UNFILLED_LIKE, DRAW, APPLY_MASK]
        (found, strides, state), (expected, like, after) = run(made, [x]), run(graph, [x])
        assert strides == like
        assert all(map(torch.equal, found, expected))
        assert torch.equal(state, after)
        assert not torch.equal(state, torch.Generator().manual_seed(SEED).get_state())


@pytest.mark.parametrize("outputs", [(0,), (1,), (1, 0)])
def test_results_that_nobody_uses_stand_in_no_way(outputs):
    x = operand(torch.float32, "rows")
    graph = dropout(x, outputs=outputs)
    made = apply_rule(graph, registry(), RULE).edited.graph
    assert all(map(torch.equal, run(made, [x])[0], run(graph, [x])[0]))


def test_it_holds_for_every_number_of_rows():
    captured = operand(torch.float32, "rows")
    graph = symbolised(dropout(captured), {captured.shape[0]: "B"})
    made = apply_rule(graph, registry(), RULE).edited.graph
    for rows in (1, 5, 24):
        x = captured[:rows]
        found, expected = (run(with_sizes(one, {"B": rows}), [x]) for one in (made, graph))
        assert all(map(torch.equal, found[0], expected[0]))
        assert torch.equal(found[2], expected[2])


@settings(max_examples=examples(200))
@given(st.floats(0, 1), st.sampled_from(DTYPES))
def test_the_factor_is_rounded_as_kernels_round_it(chance, dtype):
    mask, kept = torch.ones((), dtype=dtype), 1 / (1 - chance) if chance < 1 else 0.0
    expected = (mask * kept).item()
    found = kept_factor(chance, str(dtype).removeprefix("torch."))
    assert found == (None if expected == torch.inf else expected)


def why(graph):
    """Why the one dropout of a graph stays."""
    return refused(RULE, graph, last_of(graph, FUSED_DROPOUT))


def test_what_would_draw_other_numbers_or_none_is_left_alone():
    x = torch.ones(4, 4)
    elsewhere = dropout(x)
    storages = tuple(replace(storage, device="cuda:0") for storage in elsewhere.storages)
    assert "device" in why(replace(elsewhere, storages=storages))
    assert "no elements" in why(dropout(torch.ones(0, 4), outputs=()))
    assert "float16" in why(dropout(x.half(), 0.999999))
    in_evaluation = dropout(x, train=False)
    assert not list(RULE.find(in_evaluation, registry()))
    with pytest.raises(RewriteError, match="draws no mask"):
        RULE.apply(in_evaluation, registry(), Rewrite(RULE.name, (0,)))
