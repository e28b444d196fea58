"""Programs that take storages to the host and back: the same bits, and exactly the predicted bytes on both."""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.copy_engines import file_copy_engine
from neaptide.copy_engines.host_pool import HostCopy
from neaptide.errors import LoweringError, TransferError, VerifyError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.schedule import Offload, Schedule
from neaptide.ir.values import Kind
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.runtime.calls.executor import Executable
from support.drawn import examples
from support.together import together
from support.torch_programs import (
    Recorder,
    as_state,
    check_run,
    random_order,
    random_program,
    with_offloads,
    with_recomputation,
)


def executable(graph, schedule):
    return Executable(lower(graph, schedule, registry()), name="test")


@settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data())
def test_random_programs_with_repetitions_and_offloads(data):
    recorder, graph = random_program(data.draw)
    graph = as_state(graph) if data.draw(st.booleans()) else graph
    order = with_recomputation(data.draw, graph, random_order(data.draw, graph))
    chance = data.draw(st.randoms(use_true_random=False))
    schedule = with_offloads(graph, Schedule.from_nodes(graph, order), chance, tries=40)
    check_run(recorder, graph, schedule, executable(graph, schedule))


def chain():
    recorder = Recorder()
    h = recorder.call("aten.relu.default", recorder.input(torch.randn(100), "x"))
    v = recorder.call("aten.view.default", h, [10, 10])
    g = recorder.call("aten.sum.default", h)
    for _ in range(3):
        g = recorder.call("aten.exp.default", g)
    out = recorder.call("aten.mul.Tensor", v, g)
    return recorder, recorder.finish([out])


def offload_of(graph, *places):
    return Offload(graph.created_storages(graph.nodes[0])[0], 0, *places)


def test_the_program_says_where_a_storage_leaves_and_returns():
    recorder, graph = chain()
    schedule = Schedule.program_order(graph).with_offloads([offload_of(graph, 1, 2, 5, 6)])
    check_schedule(graph, schedule, registry())
    program = lower(graph, schedule, registry())
    lines = [line.strip() for line in program.source.splitlines()]
    names = [graph.values[node.outputs[0]].name for node in graph.nodes]
    told = [line for line in lines if "stored_" in line]
    assert told[0] == f"stored_{names[0]} = host.store({names[0]})"
    assert told[1:] == [f"stored_{names[0]}.{word}()" for word in ("leave", "load", "arrive")] + [
        f"del stored_{names[0]}"
    ]
    check_run(recorder, graph, schedule, Executable(program, name="chain"))
    profile = memory_profile(graph, schedule)
    assert profile.bytes_at == (800, 800, 804, 408, 408, 808, 1204)
    assert profile.host_bytes_at == (0, 400, 400, 400, 400, 400, 0)


def test_storages_of_other_devices_are_not_stored_yet():
    _, graph = chain()
    storages = tuple(replace(storage, device="mps") for storage in graph.storages)
    elsewhere = replace(graph, storages=storages)
    schedule = Schedule.program_order(elsewhere).with_offloads([offload_of(graph, 1, 2, 5, 6)])
    with pytest.raises(LoweringError, match=r"is to be stored on the host from mps"):
        lower(elsewhere, schedule, registry())


def dying(graph, schedule, op, error):
    """The program, in which one operation raises an error."""

    def dies(*_):
        raise error

    program = lower(graph, schedule, registry())
    names = {name: dies if op in str(thing) else thing for name, thing in program.names.items()}
    return Executable(replace(program, names=names), name="broken")


def test_a_run_that_dies_gives_back_what_it_kept_on_the_host():
    recorder, graph = chain()
    schedule = Schedule.program_order(graph).with_offloads([offload_of(graph, 1, 2, 5, 6)])
    broken = dying(graph, schedule, "exp", RuntimeError("in the middle"))
    with pytest.raises(RuntimeError, match="in the middle"):
        broken.run(recorder.fresh_inputs())
    host = broken.program.names["host"]
    assert (host.live_bytes, host.peak_bytes) == (0, 400)


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(("access", "does"), [("write_piece", "storing"), ("read_piece", "loading")])
def test_a_copy_that_fails_ends_the_run_with_its_inputs_as_they_were(monkeypatch, access, does):
    recorder, graph = chain()
    schedule = Schedule.program_order(graph).with_offloads([offload_of(graph, 1, 2, 5, 6)])
    runs = executable(graph, schedule)
    (given_input,) = recorder.fresh_inputs()
    expected = given_input.clone()
    with monkeypatch.context() as patched:
        patched.setattr(file_copy_engine, access, no_space)
        with pytest.raises(TransferError, match=f"{does} 400 B failed") as failed:
            runs.run([given_input])
    told = "\n".join(failed.value.__notes__)
    assert "while neaptide ran test" in told
    assert "stored_" in told
    assert torch.equal(given_input, expected)
    assert runs.interruption is None
    assert runs.program.names["host"].live_bytes == 0
    check_run(recorder, graph, schedule, runs)


def state_step():
    """0 and 1 do without the state s; 2 adds to it; 3 and 4 do without it again."""
    recorder = Recorder()
    x, s = recorder.input(torch.randn(100), "x"), recorder.input(torch.randn(50), "s")
    h = recorder.call("aten.exp.default", x)
    g = recorder.call("aten.sum.default", h)
    recorder.call("aten.add_.Tensor", s, g)
    y = recorder.call("aten.relu.default", x)
    graph = as_state(recorder.finish([recorder.call("aten.sum.default", y)]))
    storage = graph.values[next(v for v in graph.inputs if graph.values[v].name == "s")].storage
    offloads = [Offload(storage, 0, 0, 0, 2, 2), Offload(storage, 0, 2, 2, 4, 5)]
    schedule = Schedule.program_order(graph).with_offloads(offloads)
    check_schedule(graph, schedule, registry())
    return recorder, graph, schedule


def test_state_of_the_caller_is_away_while_nothing_needs_it():
    recorder, graph, schedule = state_step()
    check_run(recorder, graph, schedule, executable(graph, schedule))
    profile = memory_profile(graph, schedule)
    alone = memory_profile(graph, Schedule.program_order(graph))
    gone = [before - now for before, now in zip(alone.bytes_at, profile.bytes_at, strict=True)]
    assert gone == [0, 200, 0, 200, 0]
    assert profile.host_bytes_at == (200, 200, 200, 200, 200)
    assert profile.persistent_bytes == alone.persistent_bytes == 600


@together("broken_op", ["exp", "sum.default", "add_", "relu"])
def test_state_of_the_caller_is_back_when_a_run_dies(broken_op):
    recorder, graph, schedule = state_step()
    broken = dying(graph, schedule, broken_op, KeyboardInterrupt())
    x, s = recorder.fresh_inputs()
    before = s.clone()
    with pytest.raises(KeyboardInterrupt):
        broken.run([x, s])
    written = broken.interruption.written if broken.interruption else ()
    assert written == (("s",) if broken_op in {"add_", "relu"} else ())
    assert s.untyped_storage().nbytes() == 200
    assert torch.equal(s, before if broken_op != "relu" else before + x.exp().sum())
    assert broken.program.names["host"].live_bytes == 0


def test_state_is_brought_back_however_often_that_is_interrupted(monkeypatch):
    recorder, graph, schedule = state_step()
    broken = dying(graph, schedule, "sum.default", RuntimeError("in the middle"))
    arrive, left = HostCopy.arrive, [2]

    def interrupted(copy):
        if left[0]:
            left[0] -= 1
            raise KeyboardInterrupt
        arrive(copy)

    monkeypatch.setattr(HostCopy, "arrive", interrupted)
    x, s = recorder.fresh_inputs()
    before = s.clone()
    with pytest.raises(RuntimeError, match="in the middle"):
        broken.run([x, s])
    assert left == [0]
    assert torch.equal(s, before)


def test_state_whose_bytes_belong_to_an_array_is_refused():
    recorder, graph, schedule = state_step()
    x, s = recorder.fresh_inputs()
    shared = torch.from_numpy(s.numpy().copy())
    with pytest.raises(TransferError, match="s cannot leave the device"):
        executable(graph, schedule).run([x, shared])
    seen = s.clone()
    seen.numpy()
    with pytest.raises(TransferError, match="s cannot leave the device"):
        executable(graph, schedule).run([x, seen])


def test_state_that_nothing_takes_is_not_handed_over_and_does_not_wait():
    b = GraphBuilder("unused")
    used, unused = (b.input(name, (64,), kind=Kind.PARAMETER) for name in ("used", "unused"))
    made = [used]
    for number in range(7):
        other = used if number == 6 else made[-1]
        made += b.node("aten.add.Tensor", made[-1], other, outputs=[f"x{number}: f32[64]"])
    b.output(made[-1])
    graph = b.finish()
    order = Schedule.program_order(graph)
    waits, offloads = (
        order.with_offloads([Offload(graph.values[value].storage, 0, 1, 2, 3, 4)]) for value in (used, unused)
    )
    check_schedule(graph, waits, registry())
    executable(graph, waits)
    with pytest.raises(VerifyError):
        check_schedule(graph, offloads, registry())
