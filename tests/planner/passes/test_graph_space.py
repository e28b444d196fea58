from __future__ import annotations

from types import MappingProxyType

import pytest

from neaptide.errors import UsageError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.registry import Trait
from neaptide.named_peers import PASSES as PEERS
from neaptide.named_peers import peer
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.passes.features import NAMES, Lives, at_the_peak, facts_of
from neaptide.planner.passes.graph_space import GraphSpace
from neaptide.planner.passes.plan_passes import plan_passes
from neaptide.planner.passes.search import search_passes
from neaptide.schedule.order.from_graph import order_problem
from neaptide.schedule.order.portfolio import best_order
from neaptide.transform.rewrite import Rule, apply_rewrite, replay
from neaptide.transform.rules import RULES
from support.together import together

REGISTRY = registry()
PASSES = MappingProxyType(
    {name: RULES[name] for name in ("common_subexpressions", "concat_before_convolution")}
)
STRIDE_ONE = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)


def joined(twice: bool = True):
    """Two activations are joined and convolved; two equal activations follow."""
    b = GraphBuilder("joined", REGISTRY)
    x, weight = b.input("x", (1, 8, 16, 16)), b.input("w", (4, 16, 3, 3))
    a, c = (b.node(f"aten.{op}.default", x, outputs=[f"{op}: f32[1, 8, 16, 16]"])[0] for op in ("exp", "sin"))
    (join,) = b.node("aten.cat.default", [a, c], 1, outputs=["join: f32[1, 16, 16, 16]"])
    (made,) = b.node(
        "aten.convolution.default", join, weight, None, *STRIDE_ONE, outputs=["y: f32[1, 4, 16, 16]"]
    )
    equal = [
        b.node("aten.sigmoid.default", made, outputs=[f"s{k}: f32[1, 4, 16, 16]"])[0]
        for k in range(2 if twice else 1)
    ]
    b.output(b.node("aten.mul.Tensor", equal[0], equal[-1], outputs=["z: f32[1, 4, 16, 16]"])[0])
    return b.finish()


def space(graph, passes=PASSES):
    return GraphSpace(graph, REGISTRY, passes, order_problem)


def test_a_search_over_a_graph_ends_with_rewrites_that_make_the_same_graph_again():
    graph = joined()
    searched = space(graph)
    outcome = search_passes(searched, peer("passes", "exhaustive").Exhaustive(3), Limits())
    best = outcome.require().best
    assert "concat_before_convolution" in best.state.taken
    assert best.nbytes < outcome.require().entries[0].nbytes
    again = replay(graph, REGISTRY, best.state.rewrites, PASSES).graph
    assert fingerprint(again) == searched.key(best.state)
    assert best_order(order_problem(again), Limits(work=2000)).require().peak_bytes == best.nbytes


def test_passes_that_commute_lead_to_one_state():
    outcome = search_passes(space(joined()), peer("passes", "exhaustive").Exhaustive(3), Limits())
    assert outcome.work == 4
    assert len(outcome.require().entries) == 4


def test_a_pass_without_places_is_not_offered():
    measured = space(joined(twice=False)).measure(space(joined(twice=False)).start)
    assert list(measured.facts) == ["concat_before_convolution"]
    assert measured.counts == (2, 1, 6)


def test_features_say_what_the_places_of_a_pass_have_live_at_the_peak():
    graph = joined()
    problem = order_problem(graph)
    found = best_order(problem, Limits(work=2000)).require()
    places = {name: tuple(rule.find(graph, REGISTRY)) for name, rule in PASSES.items()}
    facts = {
        name: dict(zip(NAMES, some, strict=True))
        for name, some in facts_of(
            graph, REGISTRY, problem, Lives.of(problem, found.order), places, ["x"]
        ).items()
    }
    join = facts["concat_before_convolution"]
    # Both pieces, the join of them and the persistent inputs are live at the peak; inputs do not count.
    assert join["live_at_peak"] == pytest.approx(1.0)
    assert join["peaks_touched"] == 1.0
    assert join["rest_without_all"] < join["rest_without_results"] < 0
    assert join["elementwise_at_peak"] == pytest.approx(0.5)
    assert join["steps"] == 1.0
    equal = facts["common_subexpressions"]
    assert equal["live_at_peak"] == 0.0
    assert equal["rest_without_all"] == 0.0


def test_of_alternatives_the_place_at_the_peak_is_tried_first_and_another_where_it_is_refused():
    graph = joined()
    problem = order_problem(graph)
    order = best_order(problem, Limits(work=2000)).require().order
    lives = Lives.of(problem, order)
    (equal,) = PASSES["common_subexpressions"].find(graph, REGISTRY)
    (join,) = PASSES["concat_before_convolution"].find(graph, REGISTRY)
    assert at_the_peak([equal, join], problem, lives, order) == (join,)

    tried = []

    def apply(graph, registry, rewrite, _sizes):
        tried.append(rewrite.nodes)
        # The place of the other rule is none that this one may change.
        return RULES["common_subexpressions"].apply(graph, registry, rewrite, _sizes)

    def find(graph, registry):
        others = RULES["concat_before_convolution"].find(graph, registry)
        equals = RULES["common_subexpressions"].find(graph, registry)
        for found in (*equals, *others):
            yield type(found)("either", found.nodes)

    rule = Rule(name="either", summary="", find=find, apply=apply, are_alternatives=True)
    searched = space(graph, {"either": rule})
    searched.measure(searched.start)
    after = searched.after(searched.start, "either")
    assert tried == [join.nodes, equal.nodes]
    assert after.rewrites == (equal_as(equal),)
    assert fingerprint(apply_rewrite(graph, REGISTRY, equal, PASSES).graph) == searched.key(after)


def equal_as(rewrite):
    return type(rewrite)("either", rewrite.nodes)


def test_the_operators_at_the_peak_come_in_by_traits_that_operations_have():
    assert {trait.value for trait in Trait} >= {name.removesuffix("_at_peak") for name in NAMES[-8:]}


def planned(names, **asked):
    return plan_passes(joined(), REGISTRY, PASSES, order_problem, names=names, **asked)


def test_a_plan_of_passes_says_what_each_did_and_how_many_graphs_were_measured():
    outcome = planned(["concat_before_convolution", "common_subexpressions"])
    found = outcome.require()
    assert [step.name for step in found.steps] == ["concat_before_convolution", "common_subexpressions"]
    assert found.measurements == outcome.work == 3
    first, last = found.steps  # the second lowers nothing, and runs because it is named
    assert (first.before_bytes, last.after_bytes) == (found.baseline_peak_bytes, found.peak_bytes)
    assert first.after_bytes == last.before_bytes
    assert found.rewrites
    assert fingerprint(replay(joined(), REGISTRY, found.rewrites, PASSES).graph) == fingerprint(found.graph)


@together("names", [[], ["none"]])
def test_without_passes_the_graph_stays_what_it_is(names):
    outcome = planned(names)
    found = outcome.require()
    assert fingerprint(found.graph) == fingerprint(joined())
    assert (found.steps, found.rewrites, found.measurements) == ((), (), 1)
    assert found.peak_bytes == found.baseline_peak_bytes


@together("name", PEERS)
def test_peers_can_be_asked_for_by_name(name):
    found = planned([name], limits=Limits(work=10)).require()
    assert found.peak_bytes < found.baseline_peak_bytes


def test_a_name_that_is_no_pass_is_refused_with_those_that_are():
    with pytest.raises(UsageError, match="no pass is called 'unrolled'") as caught:
        planned(["common_subexpressions", "unrolled"])
    assert "concat_before_convolution" in str(caught.value.next_step)
