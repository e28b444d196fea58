"""What `transform.rewrite.Rule` promises, of every rule by name: on its example, on random programs, and of rewrites by chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neaptide.errors import RewriteError
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ir.schedule import Schedule
from neaptide.ir.text.writer import print_graph
from neaptide.lower.torch_code import lower
from neaptide.ops import dropouts, means, registry
from neaptide.ops.aten import dialect as aten_dialect
from neaptide.runtime.calls.executor import Executable
from neaptide.transform.rewrite import Rewrite, apply_rule, replay
from neaptide.transform.rules import RULES
from support.drawn import examples
from support.together import together
from support.torch_programs import check_run, random_program
from transform.fission_play import assert_close, peak, random_inputs, run_measured
from transform.graph_play import doubled
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


def checked(recorder, graph, edited):
    """The program after a rewrite gives what was recorded, in the bytes that are predicted."""
    recorder.follow(edited, graph)
    schedule = Schedule.program_order(edited.graph)
    lowered = lower(edited.graph, schedule, registry())
    check_run(recorder, edited.graph, schedule, Executable(lowered, name="test"))


NO_HIGHER = {"common_subexpressions", "in_place", "redundant_copies"}
"""Rules that never raise the peak of program order."""
RANDOM = settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
KEEPING = [name for name in FINDING if RULES[name].keeps_bits]


@pytest.mark.parametrize("name", KEEPING)
@RANDOM
@given(data=st.data())
def test_random_programs_keep_their_bits_and_finding_is_the_same_again(name, data):
    recorder, graph = random_program(data.draw)
    begun = doubled(data.draw, graph, keeps_numbers=True)
    rule = RULES[name]
    assert tuple(rule.find(begun.graph, registry())) == tuple(rule.find(begun.graph, registry()))
    made = apply_rule(begun.graph, registry(), rule)
    assert replay(begun.graph, registry(), made.rewrites, RULES) == made.edited
    assert not list(rule.find(made.edited.graph, registry()))
    assert name not in NO_HIGHER or peak(made.edited.graph) <= peak(begun.graph)
    checked(recorder, graph, begun.then(made.edited))


@pytest.mark.parametrize("name", RULES)
@RANDOM
@given(data=st.data())
def test_a_rewrite_named_by_chance_is_refused_or_harmless(name, data):
    recorder, graph = random_program(data.draw)
    begun = doubled(data.draw, graph, keeps_numbers=True)
    count = len(begun.graph.nodes)
    nodes = data.draw(st.lists(st.integers(0, count + 1), max_size=3, unique=True).map(sorted))
    rewrite = Rewrite(name, tuple(nodes), keeps_bits=RULES[name].keeps_bits)
    try:
        edited = replay(begun.graph, registry(), [rewrite], RULES)
    except RewriteError:
        return
    if rewrite.keeps_bits:
        checked(recorder, graph, begun.then(edited))


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
    constants = [item for module in (dropouts, means, aten_dialect) for item in vars(module).values()]
    names = set(names_in(tuple(constants)))
    assert len(names) > 30
    assert [name for name in names if name not in registry()] == []
