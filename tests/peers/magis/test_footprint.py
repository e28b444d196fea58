"""Bytes and seconds by MAGIS's conventions: by hand, and against a count of what is there at every step."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.errors import UsageError
from neaptide.ir.schedule import Offload, Schedule
from neaptide.planner.variants.choices import Choices
from neaptide_corpus.recorded_steps import from_json
from neaptide_peers.magis.footprint import footprint
from neaptide_peers.magis.seconds import BYTES_PER_S, CALL_S, FLOPS_PER_S, LINK_BYTES_PER_S, RecordedCost
from peers.magis.recorded_play import Tape, perceptron


def made(form):
    step = from_json(json.dumps(form))
    return step, RecordedCost(step.registry)


def in_parts(step, parts):
    choices = Choices(step.registry, lambda _: None)
    found = choices.after(choices.begun(step.graph))
    steps = (choice for choice in found if choice.regions[0].kind == "step")
    whole = next(choice for choice in steps if choice.regions[0].origin[1] == 0)  # along the batch
    return choices.taken(whole, parts).graph


def test_seconds_are_those_of_the_roofline():
    tape = Tape()
    x = tape.add("placeholder", (64, 512), name="x")
    w = tape.add("placeholder", (512, 256), weight=True, name="w")
    product = tape.add("matmul", (64, 256), [x, w], [[[0, 0], [1, -1]], [[0, -1], [1, 1]]])
    tape.add("permute", (256, 64), [product], [[[0, 1], [1, 0]]])
    step, cost = made(tape.form)
    flops, moved = 2 * 64 * 512 * 256, 4 * (64 * 512 + 512 * 256 + 64 * 256)
    product, permuted = (cost.seconds(step.graph, node) for node in step.graph.nodes)
    assert product == pytest.approx(CALL_S + max(flops / FLOPS_PER_S, moved / BYTES_PER_S))
    assert permuted == CALL_S


def by_counting(form, order):
    """The peak of a step in some order of its nodes, without parts: sizes of all that is made and still wanted."""
    by_id = {node["id"]: node for node in form}
    given_ = [node["id"] for node in form if node["tag"] == "placeholder"]
    most = 0
    for at, number in enumerate(order):
        later = [by_id[n] for n in order[at:]]
        wanted = {a for node in later for a in node["args"]}
        used = {a for node in form for a in node["args"]}
        there = set(order[: at + 1]) | set(given_)
        live = {n for n in there if n in wanted or n not in used or n == number}
        most = max(most, 4 * sum(by_id[n]["out_elems"] for n in live))
    return most


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4))
def test_peaks_are_those_of_a_plain_count(batch, width, layers):
    form = perceptron(batch, width, layers)
    step, cost = made(form)
    order = [node["id"] for node in form if node["tag"] != "placeholder"]
    # The count has no inputs that nobody uses, and this step has none.
    assert footprint(step.graph, Schedule.program_order(step.graph), cost).peak_bytes == by_counting(
        form, order
    )


def test_a_recomputation_takes_its_bytes_and_seconds_again():
    step, cost = made(perceptron(layers=2))
    graph = step.graph
    plain = footprint(graph, Schedule.program_order(graph), cost)
    first = 0
    order = [*range(6), first, *range(6, len(graph.nodes))]
    again = footprint(graph, Schedule.from_nodes(graph, order), cost)
    assert again.seconds == pytest.approx(plain.seconds + cost.seconds(graph, graph.nodes[first]))


def test_parts_hold_slices_and_pieces():
    batch, width, parts = 4, 12, 2
    step, cost = made(perceptron(batch, width, layers=1))
    graph = in_parts(step, parts)
    (loop,) = [node for node in graph.nodes if node.regions]
    simulated = footprint(graph, Schedule.program_order(graph), cost)
    generated = footprint(graph, Schedule.program_order(graph), cost, holds_pieces=False)
    rows, square = 4 * batch * width, 4 * width * width
    part = rows // parts
    # Given: three times the rows and the weight. Merged: the loss and the gradient of the weight.
    around = 3 * rows + square + rows + square
    # At the last product a part holds its slice of x, a gradient, and the piece of the weight's gradient that it makes.
    assert generated.peak_bytes == around + 2 * part + square
    # The simulator holds the piece of the loss as well.
    assert simulated.peak_bytes == around + 3 * part + square
    inside = [n for n in step.graph.nodes if n.source.phase != "optimizer"]
    assert simulated.seconds > sum(cost.seconds(step.graph, n) for n in inside)
    assert len(loop.regions[0].merges) == 2


@pytest.mark.parametrize("parts", [3, 5, 8])
def test_a_shorter_last_part_takes_less_time(parts):
    step, cost = made(perceptron(batch=8))
    graph = in_parts(step, parts)
    found = footprint(graph, Schedule.program_order(graph), cost)
    whole = sum(cost.seconds(graph, node) for node in graph.nodes)
    assert found.seconds == pytest.approx(whole)


def test_an_offload_on_the_host_takes_bytes_away_and_copies_take_their_time():
    step, cost = made(perceptron(batch=64, width=64))
    graph = step.graph
    plain = footprint(graph, Schedule.program_order(graph), cost)
    made_by = graph.nodes[0]
    storage = graph.values[made_by.outputs[0]].storage
    uses = [node.id for node in graph.nodes if made_by.outputs[0] in node.inputs]
    last = uses[-1]
    offload = Offload(storage, 0, uses[0], uses[0], last, last)
    found = footprint(graph, Schedule.program_order(graph).with_offloads([offload]), cost)
    # Nothing runs beside either copy.
    copy_s = CALL_S + 4 * 64 * 64 / LINK_BYTES_PER_S
    assert found.seconds == pytest.approx(plain.seconds + 2 * copy_s)
    assert found.peak_bytes == plain.peak_bytes - 4 * 64 * 64


def test_transfers_in_bodies_are_refused():
    step, cost = made(perceptron())
    graph = in_parts(step, 2)
    (loop,) = [node for node in graph.nodes if node.regions]
    body = loop.regions[0].body
    storage = body.values[body.nodes[0].outputs[0]].storage
    within = Schedule.program_order(body).with_offloads([Offload(storage, 0, 1, 1, 3, 3)])
    with pytest.raises(UsageError, match="transfers"):
        footprint(graph, Schedule.program_order(graph, {loop.id: within}), cost)
