from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.liveness import compute_liveness, with_frees
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.schedule import Schedule, Step, StepKind
from neaptide_corpus.training_steps import toy_registry
from support.drawn import graphs, schedules


def small():
    """x -> a -> (view v) -> b; a is needed again at the end, spare is never used."""
    b = GraphBuilder("small", toy_registry())
    x = b.input("x", (4,))
    (a,) = b.node("toy.mix", x, outputs=["a: f32[4]"])
    (v,) = b.node("toy.view", a, outputs=["v: f32[4] @a"])
    c, spare = b.node("toy.split", v, outputs=["c: f32[8]", "spare: f32[2]"])
    (d,) = b.node("toy.mix", c, a, outputs=["d: f32[1]"])
    b.output(d)
    return b.finish(), {"x": x, "a": a, "v": v, "c": c, "spare": spare, "d": d}


def test_names_die_behind_their_last_use_and_unused_ones_behind_their_own_step():
    graph, ids = small()
    deaths = compute_liveness(graph, Schedule.program_order(graph)).deaths
    assert deaths == ((), (), (ids["v"], ids["spare"]), (ids["a"], ids["c"]))


def test_a_recomputation_starts_a_new_instance_and_ends_the_old_one_at_its_last_use():
    graph, ids = small()
    live = compute_liveness(graph, Schedule.from_nodes(graph, [0, 1, 2, 0, 3]))
    of_a = [i for i in live.instances if i.storage == graph.values[ids["a"]].storage]
    assert [(i.occurrence, i.start, i.end) for i in of_a] == [(0, 0, 3), (1, 3, 5)]
    bindings = [(b.occurrence, b.start, b.end) for b in live.bindings if b.value == ids["a"]]
    assert bindings == [(0, 0, 2), (1, 3, 5)]


def test_frees_stand_behind_the_last_step_of_an_instance():
    graph, ids = small()
    storage = {name: graph.values[v].storage for name, v in ids.items()}
    frees = with_frees(graph, Schedule.from_nodes(graph, [0, 1, 2, 0, 3])).steps
    assert frees[3:5] == (
        Step(StepKind.FREE, storage["a"], 0),
        Step(StepKind.FREE, storage["spare"], 0),
    )
    assert frees[-2:] == (Step(StepKind.FREE, storage["a"], 1), Step(StepKind.FREE, storage["c"], 0))


def test_an_operand_used_for_its_shape_alone_is_not_kept():
    b = GraphBuilder("shape", toy_registry())
    x = b.input("x", (1,))
    (a,) = b.node("toy.mix", x, outputs=["a: f32[9]"])
    (c,) = b.node("toy.mix", x, outputs=["c: f32[1]"])
    (d,) = b.node("toy.expand_like", c, a, outputs=["d: f32[9]"], reads=[c])
    b.output(d)
    graph = b.finish()
    assert compute_liveness(graph, Schedule.program_order(graph)).deaths[0] == (a,)


@given(st.data())
def test_instances_add_up_to_the_profile_and_frees_are_legal(data):
    graph = data.draw(graphs(min_nodes=1))
    schedule = data.draw(schedules(graph))
    live = compute_liveness(graph, schedule)
    sizes = [s.nbytes.constant_value() for s in graph.storages]
    held = [
        sum(sizes[i.storage] for i in live.instances if i.start <= position < i.end)
        for position in range(len(live.steps))
    ]
    assert tuple(held) == memory_profile(graph, schedule).bytes_at
    freed = with_frees(graph, schedule)
    check_schedule(graph, freed, toy_registry())
    assert with_frees(graph, freed) == freed
    assert freed.node_steps() == schedule.node_steps()
