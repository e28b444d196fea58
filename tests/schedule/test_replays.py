from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.schedule import Schedule
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import compile_problem
from neaptide.schedule.replays import Replays
from neaptide_corpus.training_steps import toy_registry
from support.drawn import graphs, node_orders

REGISTRY = toy_registry()


def units(evaluator, before):
    """Creators that are repeated before a node."""
    return [node for node in evaluator.repeated(before) if evaluator.problem.created[node]]


@given(st.data())
def test_closures_and_removals_keep_the_schedule_legal(data):
    graph = data.draw(graphs(min_nodes=3))
    evaluator = Evaluator(compile_problem(graph, REGISTRY), data.draw(node_orders(graph)))
    replays = Replays(evaluator)
    problem = evaluator.problem
    for _ in range(data.draw(st.integers(1, 6))):
        anchors = [a for a in evaluator.anchors() if units(evaluator, a)]
        if anchors and data.draw(st.booleans()):
            before = data.draw(st.sampled_from(anchors))
            change = replays.removal(data.draw(st.sampled_from(units(evaluator, before))), before)
            if change is None:
                continue
        else:
            before = data.draw(st.integers(0, problem.node_count))
            made = [
                s
                for s, creator in enumerate(problem.creator)
                if creator >= 0 and evaluator.place_of(creator) < evaluator.place_of(before)
            ]
            if not made:
                continue
            hold_from = data.draw(st.none() | st.integers(0, evaluator.place_of(before)))
            share = data.draw(st.sampled_from([0.0, 0.5]))
            storage = data.draw(st.sampled_from(made))
            closure = replays.closure(storage, before, hold_share=share, hold_from=hold_from)
            if closure.refusal or not closure.nodes:
                continue
            change = replays.insertion(closure, before)
        evaluator.apply(change)
        schedule = Schedule.from_nodes(graph, evaluator.sequence())
        check_schedule(graph, schedule, REGISTRY)
        assert memory_profile(graph, schedule).peak_bytes == evaluator.peak


def batch_norm_step():
    """0 makes c; 1 batch norm; 2 relu in place; 3 view; 4 uses the view; 5 needs the view again; 6 needs c."""
    b = GraphBuilder("bn", REGISTRY)
    x, w, mean, var = (b.input(name, (4,)) for name in ("x", "w", "mean", "var"))
    (c,) = b.node("toy.mix", x, outputs=["c: f32[8]"])
    n, m, s = b.node("toy.batch_norm", c, w, mean, var, outputs=["n: f32[8]", "m: f32[1]", "s: f32[1]"])
    (r,) = b.node("toy.relu_", n, outputs=["r: f32[8] @n"])
    (v,) = b.node("toy.view", r, outputs=["v: f32[8] @r"])
    (_y,) = b.node("toy.mix", v, outputs=["y: f32[99]"])
    (z,) = b.node("toy.mix", v, m, s, outputs=["z: f32[1]"])
    (o,) = b.node("toy.mix", z, c, outputs=["o: f32[1]"])
    b.output(o)
    return b.finish(), n


def test_a_closure_holds_creator_writers_and_the_views_that_are_used():
    graph, n = batch_norm_step()
    replays = Replays(Evaluator(compile_problem(graph, REGISTRY)))
    closure = replays.closure(graph.values[n].storage, 5)
    assert closure.nodes == (1, 2, 3)
    assert closure.held == ()


def test_dead_operands_are_made_again_or_held_on_to():
    b = GraphBuilder("chain", REGISTRY)
    x = b.input("x", (4,))
    (a,) = b.node("toy.mix", x, outputs=["a: f32[2]"])
    (c,) = b.node("toy.mix", a, outputs=["c: f32[8]"])
    (d,) = b.node("toy.mix", c, outputs=["d: f32[1]"])
    (e,) = b.node("toy.mix", c, d, outputs=["e: f32[1]"])
    b.output(e)
    graph = b.finish()
    replays = Replays(Evaluator(compile_problem(graph, REGISTRY)))
    big, small = graph.values[c].storage, graph.values[a].storage
    assert replays.closure(big, 3).nodes == (0, 1)
    held = replays.closure(big, 3, hold_share=0.5)
    assert (held.nodes, held.held) == ((1,), (small,))
    assert replays.closure(big, 3, hold_from=1).held == (small,)
    assert replays.closure(big, 3, hold_from=2).nodes == (0, 1)


def test_what_was_overwritten_or_cannot_run_twice_is_refused():
    b = GraphBuilder("refused", REGISTRY)
    w = b.input("w", (4,))
    (a,) = b.node("toy.mix", w, outputs=["a: f32[4]"])
    (r,) = b.node("toy.mix", a, outputs=["r: f32[4]"], host=True)
    b.node("toy.add_", w, r, outputs=["w2: f32[4] @w"])
    (d,) = b.node("toy.mix", a, r, outputs=["d: f32[4]"])
    b.output(d)
    graph = b.finish()
    replays = Replays(Evaluator(compile_problem(graph, REGISTRY)))
    assert "overwritten before" in replays.closure(graph.values[a].storage, 3).refusal
    assert replays.closure(graph.values[a].storage, 2).nodes == (0,)
    assert "host" in replays.closure(graph.values[r].storage, 3).refusal
    assert "caller" in replays.closure(graph.values[w].storage, 3).refusal


def test_a_removal_takes_the_whole_unit_and_spares_what_others_need():
    graph, n = batch_norm_step()
    evaluator = Evaluator(compile_problem(graph, REGISTRY))
    replays = Replays(evaluator)
    evaluator.apply(replays.insertion(replays.closure(graph.values[n].storage, 5), 5))
    assert units(evaluator, 5) == [1]
    removal = replays.removal(1, 5)
    assert removal is not None
    assert removal.nodes == (1, 2, 3)
    evaluator.apply(removal)
    assert evaluator.sequence() == tuple(range(7))


def test_next_anchor_skips_repetitions():
    graph, n = batch_norm_step()
    evaluator = Evaluator(compile_problem(graph, REGISTRY))
    replays = Replays(evaluator)
    evaluator.apply(replays.insertion(replays.closure(graph.values[n].storage, 5), 5))
    assert [replays.next_anchor(p) for p in (4, 5, 7, 9, 10)] == [4, 5, 5, 6, 7]
