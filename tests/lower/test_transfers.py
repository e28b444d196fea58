"""Programs that take storages to the host and back: the same bits, and exactly the predicted bytes on both."""

from __future__ import annotations

import errno
import os
import random
import time
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.analysis.legality import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import LoweringError, TransferError
from neaptide.ir.schedule import HostStay, Schedule
from neaptide.lower.torch_code import lower
from neaptide.movers import file_mover
from neaptide.movers.slow_memory import SlowMemory
from neaptide.ops import registry
from neaptide.runtime.executor import Executable
from neaptide.zoo.spec import factory
from recorded_steps import record_step
from torch_programs import (
    Recorder,
    all_idle,
    check_run,
    random_order,
    random_program,
    shuffled,
    with_recomputation,
    with_repetitions,
    with_stays,
)


def executable(graph, schedule):
    return Executable(lower(graph, schedule, registry()), name="test")


@settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data())
def test_random_programs_with_repetitions_and_stays_on_the_host(data):
    recorder, graph = random_program(data.draw)
    order = with_recomputation(data.draw, graph, random_order(data.draw, graph))
    chance = data.draw(st.randoms(use_true_random=False))
    schedule = with_stays(graph, Schedule.from_nodes(graph, order), chance, tries=40)
    check_run(recorder, graph, schedule, executable(graph, schedule))


@pytest.mark.parametrize("spec", ["mlp", "lstm", "resnet50", "unet", "vit", "gpt2", "llama"])
def test_recorded_steps_with_all_that_is_idle_on_the_host(spec):
    if spec in {"vit", "gpt2", "llama"}:
        pytest.importorskip("transformers")
    recorder, graph = record_step(factory(spec))
    chance = random.Random(2)
    order = with_repetitions(graph, shuffled(graph, chance), chance, tries=6)
    schedule = Schedule.from_nodes(graph, order).with_stays(all_idle(graph, order))
    check_schedule(graph, schedule, registry())
    alone, stored = memory_profile(graph, Schedule.from_nodes(graph, order)), memory_profile(graph, schedule)
    assert stored.peak_bytes < alone.peak_bytes
    assert stored.peak_host_bytes > 0
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


def stay_of(graph, *places):
    return HostStay(graph.created_storages(graph.nodes[0])[0], 0, *places)


def test_the_program_says_where_a_storage_leaves_and_returns():
    recorder, graph = chain()
    schedule = Schedule.program_order(graph).with_stays([stay_of(graph, 1, 2, 5, 6)])
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
    schedule = Schedule.program_order(elsewhere).with_stays([stay_of(graph, 1, 2, 5, 6)])
    with pytest.raises(LoweringError, match=r"is to be stored on the host from mps"):
        lower(elsewhere, schedule, registry())


def test_a_run_that_dies_gives_back_what_it_kept_on_the_host():
    recorder = Recorder()
    x = recorder.input(torch.randn(100), "x")
    h = recorder.call("aten.relu.default", x)
    g = recorder.call("aten.exp.default", x)
    s = recorder.call("aten.sum.default", g)
    graph = recorder.finish([recorder.call("aten.mul.Tensor", h, s)])
    schedule = Schedule.program_order(graph).with_stays([stay_of(graph, 0, 0, 2, 3)])
    check_schedule(graph, schedule, registry())
    program = lower(graph, schedule, registry())
    names = dict(program.names)
    culprit = next(name for name, thing in names.items() if "exp" in str(thing))

    def dies(*_):
        raise RuntimeError("in the middle")

    names[culprit] = dies
    broken = Executable(replace(program, names=names), name="broken")
    with pytest.raises(RuntimeError, match="in the middle"):
        broken.run([torch.randn(100)])
    assert (names["host"].live_bytes, names["host"].peak_bytes) == (0, 400)


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(("access", "does"), [("_write", "storing"), ("_read", "loading")])
def test_a_copy_that_fails_ends_the_run_with_its_inputs_as_they_were(monkeypatch, access, does):
    recorder, graph = chain()
    schedule = Schedule.program_order(graph).with_stays([stay_of(graph, 1, 2, 5, 6)])
    runs = executable(graph, schedule)
    (given_input,) = recorder.fresh_inputs()
    expected = given_input.clone()
    with monkeypatch.context() as patched:
        patched.setattr(file_mover, access, no_space)
        with pytest.raises(TransferError, match=f"{does} 400 B failed") as failed:
            runs.run([given_input])
    told = "\n".join(failed.value.__notes__)
    assert "while neaptide ran test" in told
    assert "stored_" in told
    assert torch.equal(given_input, expected)
    assert runs.interruption is None
    assert runs.program.names["host"].live_bytes == 0
    check_run(recorder, graph, schedule, runs)


@pytest.mark.parametrize("late", ["_write", "_read"])
def test_copies_that_are_late_change_no_bits_and_no_bytes(monkeypatch, late):
    recorder, graph = record_step(factory("mlp"))
    order = range(len(graph.nodes))
    schedule = Schedule.from_nodes(graph, order).with_stays(all_idle(graph, order))
    chance, access = random.Random(5), getattr(file_mover, late)

    def slowly(*args):
        time.sleep(chance.choice([0.0, 0.0, 0.005]))
        return access(*args)

    monkeypatch.setattr(file_mover, late, slowly)
    check_run(recorder, graph, schedule, executable(graph, schedule))


def test_a_pool_of_a_given_size_that_is_too_small_is_an_error():
    recorder, graph = chain()
    schedule = Schedule.program_order(graph).with_stays([stay_of(graph, 1, 2, 5, 6)])
    program = lower(graph, schedule, registry(), slow=SlowMemory(capacity_bytes=399))
    with pytest.raises(TransferError, match="400 B do not fit on the host"):
        Executable(program, name="small").run(recorder.fresh_inputs())
