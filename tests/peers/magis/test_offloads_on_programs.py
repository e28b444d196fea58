"""Offloads in MAGIS's search on captured programs: counted as checkers count them, within the room, and run as eager does."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

import neaptide
from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.ask import CLOSE, Ask
from neaptide.budget import Budget
from neaptide.cost.devices import Link
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.errors import RewriteError, UsageError
from neaptide.frontends.torch_step import capture_step
from neaptide.ir.schedule import Schedule
from neaptide.named_peers import MAGIS, TRANSFORM_ONLY
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.graphs.plan_graph import GraphAsk
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.plans import Plan
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.comparing import contestants
from neaptide.schedule.timeline import simulate_timeline
from neaptide_peers.combinations.asked import Combining
from neaptide_peers.magis import moves, strategy
from neaptide_peers.magis.state import State
from support.catalogue import graph_of
from support.step_checks import assert_runs_as_predicted
from support.steps import rows_step, wide_head
from support.torch_programs import shuffled

DEVICE = get_device("rtx3090")
ROOM = 2**30
LINKS = {
    "fast": (Link("device", "host", 2e12, 1e-8), Link("host", "device", 1e12, 1e-8)),
    # Copies wait for one another, and operations for them.
    "slow": (Link("device", "host", 3e9, 1e-7), Link("host", "device", 2.4e9, 1e-7)),
}


def deep_step():
    """Nothing has to be rewritten for parts, and most bytes lie in the blocks."""
    return wide_head(8)


STEPS = {"rows": rows_step, "deep": deep_step}


@pytest.fixture(scope="module")
def graphs():
    return {name: graph_of(factory) for name, factory in STEPS.items()}


@pytest.fixture
def in_program_order(monkeypatch):
    """States are checked in the order that the simulation has."""
    monkeypatch.setattr(strategy, "reordered_schedule", lambda carried, *_: carried.schedule)


def carrying_of(graph, *, nbytes=ROOM, links="fast", border=None, **changes):
    """The strategy's view of a graph, with some room on the host; none for 0 bytes."""
    table = registry()
    pricing = Pricing(EstimatedCost(DEVICE, table), table)
    budget = Budget(None, latency=3600.0)
    allowed = budget.resolve(baseline(pricing.problem(graph)).peak_with_workspace_bytes)
    out, back = LINKS[links]

    def asked(edited):
        borders = (edited.node_of.index(border),) if border in edited.node_of else ()
        host = HostSpace.of(edited.graph, DEVICE, nbytes)
        host = replace(host, out=out, back=back, borders=borders, **changes)
        return GraphAsk(budget, budget_bytes=allowed, host=host if nbytes else None)

    made = Combining(graph, asked, Limits(work=60), pricing, lambda _: pricing, lambda _: None)
    return strategy.Carrying.of(made)


def walk(carrying, choices):
    """States on a way from the program as it is; every other move adds a stay where one may."""
    state = State()
    for number, choice in enumerate(choices):
        try:
            simulated = carrying.simulator.run(state)
        except RewriteError:
            return
        found = list(moves.next_states(carrying.simulator, state, simulated))
        more = [one for one in found if len(one.away) > len(state.away)]
        found = more if more and number % 2 else found
        state = found[choice % len(found)]
        yield state


WAYS = [
    (0, 0, 1, 3),
    (1, 2, 1, 0),
    (3, 1, 4, 1, 5, 9),
    (2, 7, 1, 8, 2, 8),
    (6, 6, 6),
    (4, 9, 5, 3, 5),
    (11, 3, 7, 1),
]


def as_many_offloads_as_may_be(carrying):
    """States with one offload more each, and nothing else."""
    state = State()
    while True:
        found = moves.next_states(carrying.simulator, state, carrying.simulator.run(state))
        later = next((one for one in found if one.away > state.away), None)
        if later is None:
            return
        state = later
        yield state


def checked_states(carrying):
    """States that can be carried out, each with what it comes to."""
    for states in (as_many_offloads_as_may_be(carrying), *(walk(carrying, way) for way in WAYS)):
        for state in states:
            try:
                yield state, carrying.carried_out(state)
            except RewriteError:
                continue


def profile_of(carrying, checked):
    """By the evaluator that shares no code with the searches; the schedule must be legal."""
    graph, schedule = checked.variant.graph, checked.schedule
    check_schedule(graph, schedule, registry())
    workspace = carrying.made.quick.prices(graph, schedule.bodies).workspace
    return memory_profile(graph, schedule, workspace=workspace)


def assert_counted_as_checkers_count(carrying, checked, links):
    profile = profile_of(carrying, checked)
    assert checked.counted.peak_with_workspace_bytes == profile.peak_with_workspace_bytes
    assert checked.stored.host_bytes == profile.peak_host_bytes
    problem = carrying.made.quick.problem(checked.variant.graph, checked.schedule.bodies)
    timeline = simulate_timeline(problem, checked.schedule, *LINKS[links])
    assert checked.counted.seconds == pytest.approx(timeline.seconds)


@pytest.mark.usefixtures("in_program_order")
@pytest.mark.parametrize("links", LINKS)
@pytest.mark.parametrize("name", STEPS)
def test_states_with_offloads_take_what_the_judges_count(graphs, name, links):
    """Bytes by the independent evaluator, seconds by the timeline; without loops the simulation says the same."""
    carrying, met = carrying_of(graphs[name], links=links), set()
    for state, checked in checked_states(carrying):
        assert_counted_as_checkers_count(carrying, checked, links)
        if not state.parts:
            simulated = carrying.simulator.run(state)
            assert simulated.peak_bytes == checked.counted.peak_with_workspace_bytes
            assert simulated.seconds == pytest.approx(checked.counted.seconds)
            assert len(carrying.simulator.offloads(state)) == len(checked.stored.offloads)
        if checked.stored.offloads:
            met.add((bool(state.parts), bool(state.again), checked.stored.exposed_s > 0))
    assert any(parts for parts, *_ in met)
    assert any(again for _, again, _ in met)
    assert any(waits for *_, waits in met) == (links == "slow")


def test_offloads_are_placed_in_the_order_that_runs(graphs):
    """What is ordered anew has other positions than the simulation."""
    carrying = carrying_of(graphs["deep"], links="slow")
    offloads = 0
    for _, checked in checked_states(carrying):
        assert_counted_as_checkers_count(carrying, checked, "slow")
        offloads += len(checked.stored.offloads)
    assert offloads


def test_an_order_above_program_order_is_refused(graphs, monkeypatch):
    """Stays are placed in an order that was chosen without them."""
    carrying, chance = carrying_of(graphs["deep"]), Random(0)
    in_program_order = baseline(carrying.made.quick.problem(graphs["deep"])).peak_with_workspace_bytes
    most = max(carrying.made.goal.allowed, in_program_order)

    def any_order(carried, *_):
        return Schedule.from_nodes(carried.graph, shuffled(carried.graph, chance))

    monkeypatch.setattr(strategy, "reordered_schedule", any_order)
    refused = 0
    for state in as_many_offloads_as_may_be(carrying):
        try:
            checked = carrying.carried_out(state)
        except RewriteError as why:
            refused += "fewer bytes in program order" in str(why)
            continue
        assert checked.counted.peak_with_workspace_bytes <= most
    assert refused


def test_without_room_nothing_goes_to_the_host(graphs):
    carrying = carrying_of(graphs["deep"], nbytes=0)
    for way in WAYS:
        assert all(not state.away for state in walk(carrying, way))


@pytest.mark.usefixtures("in_program_order")
def test_the_room_on_the_host_is_kept_to(graphs):
    """Of the simulation and of what is carried out alike: without loops both refuse the same states."""
    roomy = carrying_of(graphs["deep"])
    states = [(state, checked) for state, checked in checked_states(roomy) if checked.stored.offloads]
    rooms = sorted({checked.stored.host_bytes for _, checked in states})
    assert len(rooms) > 2
    refused = 0
    for nbytes in rooms[:: max(1, len(rooms) // 3)]:
        tight = carrying_of(graphs["deep"], nbytes=nbytes)
        for state, before in states:
            if any(tensor not in tight.simulator.flat.copying.movable for tensor, _ in state.away):
                continue  # no move leads there
            if before.stored.host_bytes <= nbytes:
                assert tight.carried_out(state).stored == before.stored
                continue
            refused += 1
            with pytest.raises(RewriteError, match="no room"):
                tight.carried_out(state)
            if not state.parts:
                with pytest.raises(RewriteError, match="no room"):
                    tight.simulator.run(state)
            assert tight.checked(state) is None
    assert refused
    smallest = carrying_of(graphs["deep"], nbytes=1)
    assert all(not state.away for way in WAYS for state in walk(smallest, way))


def test_what_is_stuck_stays_on_the_device(graphs):
    graph = graphs["deep"]
    moved = {tensor for way in WAYS for state in walk(carrying_of(graph), way) for tensor, _ in state.away}
    assert len(moved) > 1
    stuck = frozenset({min(moved)})
    later = {
        tensor
        for way in WAYS
        for state in walk(carrying_of(graph, stuck=stuck), way)
        for tensor, _ in state.away
    }
    assert later
    assert later.isdisjoint(stuck)


@pytest.mark.usefixtures("in_program_order")
def test_all_is_back_where_a_segment_begins(graphs):
    graph = graphs["deep"]
    free = [
        offload for _, checked in checked_states(carrying_of(graph)) for offload in checked.stored.offloads
    ]
    border = sorted(offload.back_before for offload in free)[len(free) // 2]
    assert any(offload.store_after < border < offload.back_before for offload in free)
    carrying = carrying_of(graph, border=border)
    kept = 0
    for state, checked in checked_states(carrying):
        if state.parts:
            continue  # the border may be in a loop then
        place = checked.counted.sequence.index(border)
        for offload in checked.stored.offloads:
            kept += 1
            assert offload.store_after >= place or offload.back_before <= place
        assert carrying.simulator.run(state).peak_bytes == checked.counted.peak_with_workspace_bytes
    assert kept


def test_a_storage_is_back_for_the_loop_that_needs_it(graphs):
    """A region in parts is one user; its loop and what the loop brings stand elsewhere than its members did."""
    carrying = carrying_of(graphs["deep"])
    flat = carrying.simulator.flat
    seen = 0
    for index, region in enumerate(carrying.tree.regions):
        handed = {t for n in region.members for t in flat.operands[n] if flat.maker[t] not in region.members}
        for tensor in sorted(t for t in handed if flat.maker[t] >= 0):
            state = State().with_parts(((index, 2),)).toggled_away((tensor, max(region.members)))
            checked = carrying.carried_out(state)
            edited, sequence = checked.variant.edited, checked.counted.sequence
            (loop,) = (p for p, node in enumerate(sequence) if edited.graph.nodes[node].regions)
            problem = carrying.made.quick.problem(edited.graph, checked.schedule.bodies)
            for offload in checked.stored.offloads:
                seen += 1
                assert edited.storage_of[offload.storage] == tensor
                users = [p for p, node in enumerate(sequence) if node in problem.roles[offload.storage]]
                assert loop in users
                # In front of the loop it is back for nothing but what the loop brings.
                between = [sequence[p] for p in users if offload.back_before <= p < loop]
                assert all(edited.node_of[node] in {-1, *region.members} for node in between)
                profile = profile_of(carrying, checked)
                assert checked.counted.peak_with_workspace_bytes == profile.peak_with_workspace_bytes
    assert seen


def test_offloads_have_moves_that_take_them_back(graphs):
    carrying = carrying_of(graphs["deep"])
    seen = 0
    for way in WAYS:
        for state in walk(carrying, way):
            for offload in state.away:
                seen += 1
                less = state.toggled_away(offload)
                found = moves.next_states(carrying.simulator, state, carrying.simulator.run(state))
                assert less in found
                assert less.digest != state.digest
    assert seen


def planned(factory, budget, work):
    step, batch = contestants.build(factory, 0)
    options = Ask(budget, MAGIS, Limits(work=work), numerics=CLOSE, workers=1)
    return PreparedStep(capture_step(step, (batch,)), device=DEVICE.name).plan(options)


def test_offloads_alone_take_no_time_where_copies_hide_and_keep_every_bit():
    found = planned(deep_step, Budget(None, latency="+0%", host="64MiB"), 120)
    program = found.plan.programs[0]
    assert program.offloads
    assert program.rewrites == ()
    assert program.predictions.peak_bytes < program.predictions.baseline_peak_bytes
    assert program.predictions.exposed_seconds == 0
    assert program.copies is not None
    assert len(program.copies.rows) == len(program.offloads)
    assert Plan.from_json(found.plan.to_json()) == found.plan
    assert assert_runs_as_predicted(deep_step, found).bitwise_equal


def test_offloads_beside_loops_and_recomputations_run_as_predicted():
    factory = wide_head
    budget = Budget(None, latency="+30%", host="64MiB")
    found = planned(factory, budget, 200)
    program = found.plan.programs[0]
    assert program.offloads
    assert program.moves.recomputations
    assert any(rewrite.rule == "fission" for rewrite in program.rewrites)
    assert program.predictions.host_bytes <= budget.host_bytes
    assert_runs_as_predicted(factory, found)


def test_what_would_be_left_aside_is_refused():
    step, batch = rows_step()
    between = Budget("60%", host="1GiB", state_between_steps=True)
    with pytest.raises(UsageError, match="no state between two steps"):
        neaptide.plan(step, batch, budget=between, strategy=MAGIS, numerics=CLOSE, device=DEVICE.name)
    asked = {"budget": Budget("60%", host="1GiB"), "numerics": CLOSE, "device": DEVICE.name}
    with pytest.raises(UsageError, match="moves nothing to the host"):
        neaptide.plan(step, batch, strategy=TRANSFORM_ONLY, **asked)
    with pytest.raises(UsageError, match="moves nothing to the host"):
        neaptide.compare(rows_step, also=(TRANSFORM_ONLY,), **asked)
