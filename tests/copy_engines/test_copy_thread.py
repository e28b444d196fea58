"""Jobs of a copy thread: order, errors, and copies that are given up."""

from __future__ import annotations

import threading
import time

import pytest

from neaptide.copy_engines import copy_thread
from neaptide.copy_engines.copy_thread import CopyJob, CopyThread
from neaptide.errors import TransferError


@pytest.fixture
def thread():
    made = CopyThread("test")
    yield made
    made.close()


def gated(gate, log, name, pieces=3):
    for piece in range(pieces):
        assert gate.wait(20)
        log.append((name, piece))
        yield 0.0


def test_an_error_is_told_where_the_copy_is_waited_for_and_the_next_copy_runs(thread):
    def fails():
        yield 0.0
        raise OSError(28, "No space left on device")

    gate, log = threading.Event(), []
    gate.set()
    broken, sound = (
        thread.put(CopyJob(fails(), "storing", 4)),
        thread.put(CopyJob(gated(gate, log, "b"), "storing", 4)),
    )
    sound.wait()
    for _ in range(2):
        with pytest.raises(TransferError, match="storing 4 B failed") as caught:
            broken.wait()
    assert "No space left" in caught.value.why
    assert caught.value.next_step


def test_a_copy_that_is_given_up_stops_behind_its_piece_and_a_queued_one_never_begins(thread):
    gate, log, over = threading.Event(), [], []
    running, queued = (CopyJob(gated(gate, log, name), "storing", 4) for name in "ab")
    thread.put(running)
    thread.put(queued)
    queued.abandon(lambda: over.append("queued"))
    assert over == ["queued"]
    opener = threading.Timer(0.05, gate.set)
    opener.start()
    running._stop.set()  # before the gate opens, so that the number of pieces is known
    running.abandon(lambda: over.append("running"))
    assert over == ["queued", "running"]
    assert log in ([], [("a", 0)])
    running.abandon(lambda: over.append("again"))
    assert over[-1] == "again"
    opener.join()


def test_the_queue_has_a_bound(monkeypatch):
    monkeypatch.setattr(copy_thread, "MOST_WAITING", 2)
    thread, gate, log = CopyThread("bounded"), threading.Event(), []
    put = []

    def feed():
        jobs = (CopyJob(gated(gate, log, name, 1), "storing", 4) for name in range(5))
        put.extend(map(thread.put, jobs))

    feeder = threading.Thread(target=feed)
    feeder.start()
    feeder.join(0.2)
    assert feeder.is_alive()
    assert len(put) <= 2
    gate.set()
    feeder.join(20)
    for job in put:
        job.wait()
    thread.close()
    assert log == [(name, 0) for name in range(5)]


def test_what_waits_when_the_thread_is_closed_never_begins():
    thread, gate, log = CopyThread("closing"), threading.Event(), []
    running, queued = (thread.put(CopyJob(gated(gate, log, name), "storing", 4)) for name in "ab")
    while not running._has_begun:
        time.sleep(0.001)
    threading.Timer(0.05, gate.set).start()
    thread.close()
    assert running.has_ended
    assert queued.has_ended
    assert ("b", 0) not in log
