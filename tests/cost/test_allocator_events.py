"""Allocator events against programs whose allocations are known."""

import gc
import threading

import pytest

# ruff: noqa: E402  (what follows needs torch, which is an extra)
torch = pytest.importorskip("torch")

from neaptide.cost._torch_private import RawEvent
from neaptide.cost.cards.allocator_events import _build_trace, record, region, region_scratch
from neaptide.errors import UsageError

KB = 4000  # bytes of 1000 floats


def test_hand_computed_peak_and_net():
    kept = []

    def program():
        a = torch.empty(1000)
        b = a + a
        del a
        c = b + b
        kept.append(c)

    trace = record(program)
    assert trace.peak_bytes() == 2 * KB
    assert trace.peak_bytes(start_live=500) == 2 * KB + 500
    assert [event.signed_bytes for event in trace.events] == [KB, KB, -KB, KB, -KB]
    times = [event.time_ns for event in trace.events]
    assert times == sorted(times)


def test_regions_in_one_session_have_their_own_peaks():
    x = torch.rand(1000)

    def program():
        with region("add"):
            y = x + x
        with region("drop"):
            del y
        with region("outer"):
            a = torch.empty(500)
            with region("inner"):
                b = torch.empty(250)
                del b
            del a
        with region("add"):
            pass

    trace = record(program)
    assert trace.regions == (("add", KB), ("drop", 0), ("outer", 3000), ("inner", 1000), ("add", 0))


def test_workspace_inside_operators_is_seen():
    values = torch.rand(1000)
    image = torch.rand(2, 3, 16, 16)
    weight = torch.rand(4, 3, 3, 3, requires_grad=True)
    out = {}

    def program():
        with region("sort"):
            out["sort"] = torch.sort(values)
        with region("matmul"):
            out["matmul"] = values[:100].view(10, 10) @ values[:100].view(10, 10)
        with region("forward"):
            loss = torch.nn.functional.conv2d(image, weight)
        with region("backward"):
            out["grad"] = torch.autograd.grad(loss, weight, torch.ones_like(loss))

    peaks = dict(record(program).regions)
    # Sorted values (4 bytes) and positions (8), and a scratch of positions inside.
    assert peaks["sort"] == 20_000
    assert peaks["matmul"] == 400
    # conv2d lays its operands out anew before it computes.
    assert peaks["forward"] > 2 * 4 * 14 * 14 * 4
    assert peaks["backward"] > weight.nbytes + 2 * 4 * 14 * 14 * 4


def test_death_of_a_persistent_storage_is_an_event_and_that_of_another_older_one_is_not():
    persistent, before = [torch.empty(1000), torch.empty(500)], [torch.empty(1000)]

    def program():
        before.clear()
        torch.empty(100)
        persistent.pop(0)
        torch.empty(1000)

    trace = record(program, persistent=list(persistent))
    assert [event.signed_bytes for event in trace.events] == [400, -400, -KB, KB, -KB]
    assert trace.peak_bytes(start_live=6000) == 6400


def test_recording_does_not_nest_recovers_from_errors_and_keeps_the_collector_off():
    seen = []
    record(lambda: seen.append(gc.isenabled()))
    assert (seen, gc.isenabled()) == ([False], True)
    with pytest.raises(UsageError, match="being recorded already"):
        record(lambda: record(lambda: None))
    with pytest.raises(ZeroDivisionError):
        record(lambda: 1 // 0)
    assert record(lambda: torch.empty(1000)).peak_bytes() == KB


def test_free_on_another_thread_is_repaired_when_the_address_returns_and_regions_share_borders():
    raw = [
        RawEvent(1, 1, "", 100, 64),
        # The free of block 64 was not recorded.
        RawEvent(2, 2, "", 300, 64),
        RawEvent(3, 3, "", -300, 64),
        RawEvent(4, 4, "", -700, 128),
        RawEvent(5, 5, "neaptide.region/empty", None, 0),
        RawEvent(5, 9, "neaptide.region/a", None, 0),
        RawEvent(6, 6, "", 100, 64),
        RawEvent(9, 12, "neaptide.region/b", None, 0),
        RawEvent(10, 10, "", -100, 64),
    ]
    trace = _build_trace(raw)
    assert [event.signed_bytes for event in trace.events] == [100, -100, 300, -300, 100, -100]
    assert trace.peak_bytes() == 300
    assert trace.regions == (("empty", 0), ("a", 100), ("b", 0))
    assert trace.left == (0, 100, -100)


def test_scratch_is_what_is_gone_at_the_end_of_a_region():
    kept = []

    def program():
        with region("a"):
            kept.append(torch.empty(1000))
        with region("b"):
            torch.empty(3000)
            kept.append(torch.empty(1000))
        with region("b"):
            torch.empty(2000)

    assert region_scratch(program, torch.device("cpu")) == {"a": 0, "b": 2 * KB}


def test_backward_is_seen_whichever_thread_runs_it():
    x = torch.rand(1000, requires_grad=True)

    def program():
        (x * x).sum().backward()
        x.grad = None

    peaks = {record(program).peak_bytes()}
    worker = threading.Thread(target=lambda: peaks.add(record(program).peak_bytes()))
    worker.start()
    worker.join()
    assert len(peaks) == 1
    assert peaks.pop() >= 2 * KB


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_blocks_of_a_card_are_seen_and_its_counters_stay():
    kept = torch.empty(1 << 22, device="cuda")
    del kept
    before = torch.cuda.max_memory_allocated()

    def program():
        a = torch.empty(1001, device="cuda")
        return a, torch.empty_like(a)

    assert record(program, device=torch.device("cuda:0")).peak_bytes() == 2 * 4096
    assert record(program).peak_bytes() == 0
    assert torch.cuda.max_memory_allocated() == before
