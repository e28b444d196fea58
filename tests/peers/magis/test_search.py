"""MAGIS's search: its count is that of the rewritten graph, its answer that of brute force, and the graph stays as it is."""

import json
import threading
from itertools import chain, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import UsageError
from neaptide.ir.edits.edit import GraphEdit
from neaptide.ir.schedule import Schedule
from neaptide.named_peers import RECORDED, peer
from neaptide.outcome import Limits
from neaptide_corpus.recorded_steps import from_json
from neaptide_peers.magis import moves
from neaptide_peers.magis.best_first import Wanted
from neaptide_peers.magis.carry_out import carry_out
from neaptide_peers.magis.f_tree import f_tree
from neaptide_peers.magis.f_tree_moves import is_legal
from neaptide_peers.magis.footprint import footprint
from neaptide_peers.magis.recorded_flat import recorded_flat_step
from neaptide_peers.magis.search import solve
from neaptide_peers.magis.seconds import RecordedCost
from neaptide_peers.magis.simulate import Simulator
from neaptide_peers.magis.state import State
from peers.magis.recorded_play import perceptron


def step_of(**sizes):
    return from_json(json.dumps(perceptron(**sizes)))


def tree_of(step, levels=4):
    profile = memory_profile(step.graph, Schedule.program_order(step.graph))
    return f_tree(step.graph, step.registry, [s.storage for s in profile.live_at_peak], levels=levels)


def checked(step, tree, state):
    """What a state takes, told by the rewritten graph, which must be legal."""
    made = carry_out(step, tree, state)
    check_schedule(made.graph, made.schedule, step.registry)
    return footprint(made.graph, made.schedule, RecordedCost(step.registry))


@settings(deadline=None)
@given(
    st.sampled_from([(8, 4, 3), (12, 2, 5), (4, 16, 2), (64, 512, 4)]),
    st.lists(st.integers(0, 10_000), min_size=1, max_size=8),
)
def test_states_take_what_their_rewritten_graphs_take(sizes, choices):
    batch, width, layers = sizes
    step = step_of(batch=batch, width=width, layers=layers)
    tree = tree_of(step)
    simulator = Simulator(recorded_flat_step(step), tree)
    state = State()
    for choice in choices:
        found = list(moves.next_states(simulator, state, simulator.run(state)))
        state = found[choice % len(found)]
        simulated, by_graph = simulator.run(state), checked(step, tree, state)
        assert simulated.peak_bytes == by_graph.peak_bytes
        assert simulated.seconds == pytest.approx(by_graph.seconds, rel=1e-4)  # merges take next to nothing


def test_moves_reach_regions_recomputations_and_offloads():
    """The walks above would say nothing if they met only one kind of change."""
    step = step_of(batch=64, width=512, layers=4)
    simulator = Simulator(recorded_flat_step(step), tree_of(step))
    seen = [State()]
    for _ in range(3):
        seen += [s for one in seen[-8:] for s in moves.next_states(simulator, one, simulator.run(one))]
    assert any(state.parts for state in seen)
    assert any(state.again for state in seen)
    assert any(simulator.offloads(state) for state in seen)
    assert any(state.parts and state.again for state in seen)


def test_recomputations_and_offloads_have_moves_that_take_them_back():
    step = step_of(batch=64, width=512, layers=4)
    simulator = Simulator(recorded_flat_step(step), tree_of(step))
    state, met = State(), set()
    for _ in range(4):
        later = list(moves.next_states(simulator, state, simulator.run(state)))
        more = [one for one in later if one.again > state.again or one.away > state.away]
        for one in more:
            met |= {kind for kind in ("again", "away") if getattr(one, kind) != getattr(state, kind)}
            assert state in moves.next_states(simulator, one, simulator.run(one))
        state = more[-1]
    assert met == {"again", "away"}


def test_digests_do_not_depend_on_the_way():
    one = State().with_parts(((0, 2),)).toggled_again((1, 9)).toggled_away((3, 7)).with_parts(((0, 4),))
    other = State().toggled_away((3, 7)).with_parts(((0, 4),)).toggled_again((1, 9))
    assert one == other
    assert one.digest == other.digest
    assert one.toggled_again((1, 9)).digest != one.digest
    assert one.with_parts(()).toggled_again((1, 9)).toggled_away((3, 7)).digest == State().digest


def by_brute_force(step, tree, longest_s):
    """The least peak within a time: all parts times all sets of recomputations that moves may make, on rewritten graphs."""
    simulator = Simulator(recorded_flat_step(step), tree)
    flat = simulator.flat
    counts = [[0, *(n for n in range(2, r.length + 1) if r.length % n == 0)] for r in tree.regions]
    choices = [()]
    for index, numbers in enumerate(counts):
        choices = [(*one, *([(index, n)] if n else [])) for one in choices for n in numbers]
    again = [
        (node, user)
        for node in range(len(flat.made))
        for user in flat.users[flat.made[node][0]][1:]
        if flat.again_until[node] and flat.again_until[user]  # else an update
    ]
    best = None
    for parts in filter(lambda one: is_legal(tree, one), choices):
        for some in chain.from_iterable(combinations(again, k) for k in range(len(again) + 1)):
            state = State().with_parts(parts)
            for entry in some:
                state = state.toggled_again(entry)
            if moves._without_torn(simulator, state) != state:
                continue
            if any(user >= flat.again_until[node] for node, user in some):
                continue
            found = checked(step, tree, state)
            if found.seconds <= longest_s and (best is None or found.peak_bytes < best):
                best = found.peak_bytes
    return best


@pytest.mark.parametrize(
    ("batch", "width", "layers", "more"), [(3, 8, 1, 3.0), (3, 4, 2, 1.5), (3, 32, 2, 10.0)]
)
def test_small_steps_end_at_the_optimum(batch, width, layers, more):
    step = step_of(batch=batch, width=width, layers=layers)
    longest_s = more * checked(step, tree_of(step), State()).seconds
    found = solve(step, Wanted(longest_s=longest_s), Limits(), relaxation=4.0).require()
    # States of the search may have offloads as well, which brute force has not.
    assert found.peak_bytes <= by_brute_force(step, found.tree, longest_s)
    assert checked(step, found.tree, found.state).peak_bytes == found.peak_bytes
    assert found.seconds <= longest_s


def test_the_search_rewrites_no_graph(monkeypatch):
    step = step_of(batch=64, width=2, layers=4)

    def rewritten(self, name=None):
        raise AssertionError("a graph is rewritten")

    looked_at = []
    simulated = Simulator.run

    def run(self, state):
        looked_at.append(state)
        return simulated(self, state)

    monkeypatch.setattr(GraphEdit, "finish", rewritten)
    monkeypatch.setattr(Simulator, "run", run)
    solve(step, Wanted(longest_s=1.0), Limits(work=200)).require()
    assert any(state.parts for state in looked_at)
    assert any(state.again for state in looked_at)


def test_the_same_under_a_work_limit_and_a_seed():
    step = step_of(batch=8, width=16, layers=4)
    limits = Limits(work=150, seed=3)
    wanted = Wanted(longest_s=1.5 * sum(step.seconds))
    one, other = (solve(step, wanted, limits) for _ in range(2))
    assert one.value == other.value
    assert one.work == other.work
    assert one.termination.limit == "work"


def test_parts_alone():
    step = step_of(batch=64, width=2, layers=4)
    found = solve(step, Wanted(longest_s=1.0), Limits(), parts_only=True, relaxation=2.0).require()
    assert found.state.parts
    assert not found.state.again
    assert not found.state.away


def test_never_worse_than_the_step_as_it_is():
    step = step_of(batch=8, width=64, layers=3)
    plain = checked(step, tree_of(step), State())
    interrupted = threading.Event()
    interrupted.set()
    found = solve(step, Wanted(longest_s=plain.seconds), Limits(), interrupted).require()
    assert (found.peak_bytes, found.seconds) == (plain.peak_bytes, pytest.approx(plain.seconds))
    assert found.state == State()
    longer = solve(step, Wanted(longest_s=plain.seconds), Limits(work=300)).require()
    assert longer.peak_bytes <= plain.peak_bytes


def test_the_least_time_within_bytes():
    step = step_of(batch=16, width=8, layers=4)
    plain = checked(step, tree_of(step), State())
    most = int(0.8 * plain.peak_bytes)
    found = solve(step, Wanted(most_bytes=most), Limits(work=500)).require()
    assert found.peak_bytes <= most
    assert found.seconds >= plain.seconds  # nothing that it may do saves time
    assert checked(step, found.tree, found.state).peak_bytes == found.peak_bytes
    roomy = solve(step, Wanted(most_bytes=plain.peak_bytes), Limits(work=500)).require()
    assert roomy.state == State()


def test_a_search_has_one_limit():
    with pytest.raises(UsageError, match="one limit"):
        Wanted()
    with pytest.raises(UsageError, match="one limit"):
        Wanted(1.0, 1)
    assert peer("magis", RECORDED).solve is solve


def test_a_region_that_is_as_before_is_not_looked_at_again():
    step = step_of(batch=8, width=2, layers=6)
    tree = tree_of(step)
    simulator = Simulator(recorded_flat_step(step), tree)
    inner = next(k for k, inside in enumerate(tree.children) if not inside)
    state = State().with_parts(((inner, 2),))
    simulator.run(state)
    before = simulator.levels_played
    outside = next(n for n in range(len(step.graph.nodes)) if n not in tree.regions[inner].members)
    users = simulator.flat.users[simulator.flat.made[outside][0]]
    simulator.run(state.toggled_again((outside, users[-1])))
    assert simulator.levels_played == before + 1
