"""Each rule on a small graph: the text before and after, and the same numbers."""

from __future__ import annotations

from pathlib import Path

import torch

from fission_play import assert_close, random_inputs, run_measured
from neaptide.ir.text import print_graph
from neaptide.ir.with_sizes import with_sizes
from neaptide.ops import registry
from neaptide.transform.applying import found_rewrites
from neaptide.transform.rewrite import replay
from neaptide.transform.rules import RULES
from rule_examples import EXAMPLES
from together import together

TEXTS = Path(__file__).parents[1] / "golden" / "rewrites"


@together("rule", RULES)
def test_text_before_and_after_is_golden(rule, golden):
    example = EXAMPLES[rule]()
    assert example.rewrite.rule == rule
    made = replay(example.graph, registry(), [example.rewrite], RULES).graph
    golden(f"rewrites/{rule}.txt", print_graph(example.graph) + "\n" + print_graph(made))


def test_every_rule_has_an_example_and_a_golden_text():
    assert set(EXAMPLES) == set(RULES)
    assert {path.stem for path in TEXTS.iterdir()} == set(RULES)


# Regions are looked for in captured programs, which say what is forward and what is backward.
FINDING = [rule for rule in RULES if rule not in ("fission", "fission_by_shape", "windows")]


@together("rule", FINDING)
def test_what_is_found_may_be_done_and_lies_near_its_nodes(rule):
    graph = EXAMPLES[rule]().graph
    found = found_rewrites(graph, registry(), RULES[rule])
    assert found
    for one in found:
        assert (one.rule, one.keeps_bits) == (rule, RULES[rule].keeps_bits)
        changed = replay(graph, registry(), [one], RULES).graph
        assert changed != graph
        near = list(RULES[rule].find(graph, registry(), near=one.nodes[:1]))
        assert one in near
        assert not list(RULES[rule].find(graph, registry(), near=()))
        assert_close(seeded(changed, inputs := random_inputs(graph)), seeded(graph, inputs))


def seeded(graph, inputs):
    """Results of a run, and the state that it leaves the generator in."""
    torch.manual_seed(0)
    return [*run_measured(graph, inputs), torch.get_rng_state()]


@together("rule", RULES)
def test_numbers_are_the_same(rule):
    example = EXAMPLES[rule]()
    made = replay(example.graph, registry(), [example.rewrite], RULES).graph
    before = with_sizes(example.graph, example.sizes)
    inputs = random_inputs(before)
    found, expected = (seeded(g, inputs) for g in (with_sizes(made, example.sizes), before))
    if not RULES[rule].keeps_bits:
        assert_close(found, expected)
        return
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)
