"""Each rule on a small graph: the text before and after, and the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from neaptide.errors import RewriteError
from neaptide.ir.text import print_graph
from neaptide.ir.with_sizes import with_sizes
from neaptide.ops import dropouts, means, registry, rewritten
from neaptide.transform.rewrite import Rewrite, replay
from neaptide.transform.rules import RULES
from support.together import together
from transform.fission_play import assert_close, random_inputs, run_measured
from transform.rule_examples import EXAMPLES

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


FINDING = [name for name, rule in RULES.items() if not rule.are_alternatives]


@together("rule", FINDING)
def test_what_is_found_may_be_done(rule):
    graph = EXAMPLES[rule]().graph
    found = tuple(RULES[rule].find(graph, registry()))
    assert found
    for one in found:
        assert (one.rule, one.keeps_bits) == (rule, RULES[rule].keeps_bits)
        changed = replay(graph, registry(), [one], RULES).graph
        assert changed != graph
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


NODE_RULES = {name: rule for name, rule in RULES.items() if rule.each_node}


@together("name", NODE_RULES)
def test_what_is_not_of_a_rule_is_refused(name):
    rule, graph = NODE_RULES[name], EXAMPLES[name]().graph
    (found, *_) = tuple(rule.find(graph, registry()))
    others = [node.id for node in graph.nodes if node.id not in found.nodes]
    for nodes in ((), (1, 0), found.nodes * 2, *((other,) for other in others[:1])):
        with pytest.raises(RewriteError):
            rule.apply(graph, registry(), Rewrite(name, nodes, (), rule.keeps_bits))
    with pytest.raises(RewriteError, match="no settings"):
        rule.apply(graph, registry(), replace(found, settings=(("n", 1),)))


def names_in(item):
    if isinstance(item, str) and item.startswith("aten."):
        yield item
    elif isinstance(item, Mapping | tuple):
        inside = (*item.keys(), *item.values()) if isinstance(item, Mapping) else item
        yield from (name for one in inside for name in names_in(one))


def test_every_operation_that_a_rule_makes_is_in_the_table():
    constants = [item for module in (dropouts, means, rewritten) for item in vars(module).values()]
    names = set(names_in(tuple(constants)))
    assert len(names) > 30
    assert [name for name in names if name not in registry()] == []
