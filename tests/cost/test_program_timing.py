"""Timing short calls where they stand: what is run, how often, on which numbers, and how the time is divided."""

from dataclasses import replace

import pytest

# ruff: noqa: E402  (what follows needs torch, which is an extra)
torch = pytest.importorskip("torch")

from neaptide.cost.timing import program_timing
from neaptide.cost.timing.graph_calls import GraphCalls
from neaptide.cost.timing.op_runner import PreparedCall
from neaptide.cost.timing.op_session import SHORT_S
from neaptide.cost.timing.program_timing import seconds_in_program
from neaptide.ir.builder import GraphBuilder
from neaptide.ops import registry

SHORT = SHORT_S / 10


class CountingClock:
    """Every call that it sees takes one second, however many run in it."""

    def seconds(self, work):
        work()
        return 1.0


def chain(ops):
    """Calls on one small matrix after another."""
    b = GraphBuilder("chain", registry())
    x = b.input("x", (4, 4))
    for position, op in enumerate(ops):
        if op == "mul_":
            (x,) = b.node("aten.mul_.Tensor", x, 1e-9, outputs=[f"v{position}: f32[4, 4] @x"])
        else:
            (x,) = b.node(f"aten.{op}.default", x, outputs=[f"v{position}: f32[4, 4]"])
    b.output(x)
    calls = list(GraphCalls(b.finish(), "here", {}).placed(0))
    return calls, {c.keyed.call.op.split(".")[1]: c.keyed.key for c in calls}


@pytest.fixture
def ran(monkeypatch):
    """Names of the operations that were run, in order."""
    names = []
    run = PreparedCall.run

    def counted(self):
        names.append(self.call.op.split(".")[1])
        return run(self)

    monkeypatch.setattr(PreparedCall, "run", counted)
    return names


def timed(calls, alone_s, wanted):
    return seconds_in_program(calls, alone_s, wanted, CountingClock())


def test_the_time_of_a_stretch_is_divided_among_its_calls(ran):
    calls, key = chain(["relu", "relu", "exp", "relu"])
    found = timed(calls, dict.fromkeys(key.values(), SHORT), key.values())
    # Four calls, one second each by themselves, and one second together.
    assert found == {key["relu"]: 0.25, key["exp"]: 0.25}
    assert ran[:4] == ["relu", "relu", "exp", "relu"]


def test_long_calls_are_not_run_and_unknown_ones_and_what_does_not_fit_are_left_out(ran, monkeypatch):
    calls, key = chain(["relu", "exp", "tanh"])
    alone_s = {key["relu"]: SHORT, key["exp"]: 1.0}
    assert set(timed(calls, alone_s, key.values())) == {key["relu"]}
    assert set(ran) == {"relu"}
    monkeypatch.setattr(program_timing, "_ALL_BYTES", 0)
    assert timed(calls, alone_s, key.values()) == {}


def test_only_what_is_wanted_and_what_lies_in_front_of_it_is_run(ran):
    before = program_timing._LEAD
    calls, key = chain(["tanh", *["relu"] * before, "exp", "sigmoid"])
    found = timed(calls, dict.fromkeys(key.values(), SHORT), [key["exp"]])
    assert set(found) == {key["exp"]}
    assert set(ran) == {"relu", "exp"}
    assert timed(calls, dict.fromkeys(key.values(), SHORT), []) == {}


def test_numbers_that_are_worked_on_in_place_begin_anew_each_round(monkeypatch):
    seen = []
    run = PreparedCall.run

    def looked_at(self):
        seen.append(float(self.operands[0].max()))
        return run(self)

    monkeypatch.setattr(PreparedCall, "run", looked_at)
    calls, key = chain(["mul_"])
    timed(calls, {key["mul_"]: SHORT}, key.values())
    assert len(seen) > 4
    assert len(set(seen)) == 1


def test_what_the_program_has_just_made_is_touched_before_the_call_and_no_clock_sees_it(monkeypatch):
    log = []
    monkeypatch.setattr(program_timing, "_LEAST_TOUCHED_BYTES", 0)
    touch = program_timing._touch

    def touched(blocks):
        for block in blocks:
            before = block.clone()
            touch([block])
            assert torch.equal(before, block)
            log.append("touch")

    class LoggingClock(CountingClock):
        def seconds(self, work):
            log.append("clock")
            return super().seconds(work)

    monkeypatch.setattr(program_timing, "_touch", touched)
    calls, key = chain(["relu", "exp"])
    near = list(calls)
    near[1] = replace(near[1], near=(0,))
    seconds_in_program(near, dict.fromkeys(key.values(), SHORT), key.values(), LoggingClock())
    log = log[3:]  # without the round that fills the caches
    # A round apart and a round together: in both the second call waits for its operand.
    assert log[:6] == ["clock", "touch", "clock", "clock", "touch", "clock"]


def test_a_call_that_runs_more_often_like_this_counts_as_often():
    calls, key = chain(["relu", "relu"])
    calls[1] = replace(calls[1], times=3)
    spans = iter([4.0, 8.0, *[4.0, 8.0, 6.0] * 99])  # the first round has no time together

    class SlowingClock(CountingClock):
        def seconds(self, work):
            super().seconds(work)
            return next(spans)

    found = seconds_in_program(calls, dict.fromkeys(key.values(), SHORT), key.values(), SlowingClock())
    # One run of 4 s and three of 8 s; apart the two that were played took 12 s, together 6 s.
    assert found == {key["relu"]: (4.0 + 3 * 8.0) / 4 * 6 / 12}
