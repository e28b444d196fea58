"""Equal numbers for what computes the same bits: by content, not by name."""

from __future__ import annotations

from neaptide.frontends.kernels.call_contents import CallContents
from neaptide.frontends.recording.recording import CheckpointRun
from neaptide.ir.builder import GraphBuilder
from neaptide_corpus.training_steps import toy_registry

REGISTRY = toy_registry()


def builder():
    b = GraphBuilder("contents", REGISTRY)
    return b, b.input("x", (4,)), b.input("state", (4,))


def test_the_same_call_on_the_same_bytes_has_one_number():
    b, x, _ = builder()
    (first,) = b.node("toy.mix", x, outputs=["first: f32[4]"])
    (second,) = b.node("toy.mix", x, outputs=["second: f32[4]"])
    b.node("toy.mix", first, outputs=["third: f32[4]"])
    b.node("toy.mix", second, outputs=["fourth: f32[4]"])
    found = CallContents(b.finish(), {}, REGISTRY).calls
    assert found[0] == found[1] != found[2] == found[3]


def test_a_write_makes_other_bytes():
    b, x, state = builder()
    b.node("toy.mix", x, state, outputs=["first: f32[4]"])
    b.node("toy.mix", x, state, outputs=[], writes=[state])
    b.node("toy.mix", x, state, outputs=["second: f32[4]"])
    graph = b.finish()
    found = CallContents(graph, {}, REGISTRY)
    assert found.calls[0] != found.calls[2]
    storage = graph.values[state].storage
    assert found.states[storage, 0] != found.states[storage, 1]


def test_arguments_are_told_apart_by_type_and_sign():
    b, x, _ = builder()
    for number in (0, 0.0, -0.0, False):
        b.node("toy.mix", x, number, outputs=["made: f32[4]"])
    assert len(set(CallContents(b.finish(), {}, REGISTRY).calls)) == 4


def drawn(*, draws_alike: bool, other_argument: bool = False):
    """Two draws in a first run, and two in the run that repeats it."""
    b, x, _ = builder()
    for _ in range(2):
        b.node("toy.mix", x, 1.0, outputs=["drawn: f32[4]"], rng="cpu")
    b.node("toy.mix", x, 1.0, outputs=["again: f32[4]"], rng="cpu")
    b.node("toy.mix", x, 2.0 if other_argument else 1.0, outputs=["again: f32[4]"], rng="cpu")
    first = CheckpointRun()
    again = CheckpointRun(first, draws_alike)
    runs = {0: (first,), 1: (first,), 2: (again,), 3: (again,)}
    return CallContents(b.finish(), runs, REGISTRY)


def test_draws_are_those_of_the_first_run_in_their_order():
    found = drawn(draws_alike=True)
    assert found.calls[2:] == found.calls[:2]
    assert found.calls[0] != found.calls[1]
    assert not found.unlike


def test_a_run_that_draws_anew_has_other_numbers():
    assert len(set(drawn(draws_alike=False).calls)) == 4


def test_a_draw_without_an_equal_one_is_told():
    found = drawn(draws_alike=True, other_argument=True)
    assert found.unlike == {3}
