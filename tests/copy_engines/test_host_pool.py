"""Storages that leave and return through a file: the same bits, and a clear error where that cannot be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import pytest
import torch

from neaptide.copy_engines import file_copy_engine
from neaptide.copy_engines.copy_engine import SlowMemory
from neaptide.copy_engines.file_copy_engine import FileCopyEngine
from neaptide.copy_engines.host_pool import HostPool
from neaptide.errors import TransferError

QUICK = SlowMemory(bytes_per_s=1e12)


def pool_of(nbytes, slow=QUICK):
    return HostPool(nbytes, FileCopyEngine(nbytes, slow))


def there_and_back(pool, tensor):
    copy = pool.store(tensor)
    copy.leave()
    assert tensor.untyped_storage().nbytes() == 0
    copy.load()
    copy.arrive()


def test_nothing_is_copied_faster_than_the_rate():
    whole = torch.randn(25_000)
    pool = pool_of(100_000, SlowMemory(bytes_per_s=2e6))
    began = time.perf_counter()
    there_and_back(pool, whole)
    assert time.perf_counter() - began >= 2 * 100_000 / 2e6


@pytest.fixture
def held(monkeypatch):
    """A gate that every piece of a copy waits for."""
    gate, write, read = threading.Event(), file_copy_engine.write_piece, file_copy_engine.read_piece

    def behind_the_gate(access):
        def late(*args):
            assert gate.wait(20)
            return access(*args)

        return late

    monkeypatch.setattr(file_copy_engine, "write_piece", behind_the_gate(write))
    monkeypatch.setattr(file_copy_engine, "read_piece", behind_the_gate(read))
    yield gate
    gate.set()


def test_a_storage_that_is_let_go_of_lives_until_its_copy_has_ended(held):
    whole = torch.randn(100)
    storage = weakref.ref(whole.untyped_storage())
    pool = pool_of(400)
    copy = pool.store(whole)
    del whole
    while copy._last[0]._has_begun is False:
        time.sleep(0.001)
    seen = []

    def look():
        seen.append((storage() is not None, len(pool._returned)))
        held.set()

    threading.Timer(0.05, look).start()
    del copy  # blocks until nothing reads the bytes any more
    assert seen == [(True, 0)]
    assert storage() is None
    assert pool.live_bytes == 0


def test_bytes_that_are_given_up_are_taken_again_without_mixing(held):
    pool = pool_of(400)
    first = pool.store(torch.zeros(100))
    threading.Timer(0.02, held.set).start()
    del first
    second = torch.ones(100)
    there_and_back(pool, second)
    assert torch.equal(second, torch.ones(100))


def test_a_folder_that_is_not_there_is_named(tmp_path):
    pool = pool_of(400, SlowMemory(folder=tmp_path / "nowhere"))
    with pytest.raises(TransferError, match="nowhere"):
        pool.store(torch.randn(100))


def test_a_file_that_was_cut_is_not_filled_with_zeros_by_the_next_copy():
    pool = pool_of(800)
    first, second = torch.randn(100), torch.randn(100)
    expected = second.clone()
    copy = pool.store(first)
    copy.leave()
    os.ftruncate(pool._copy_engine._file._number, 0)
    other = pool.store(second)
    with pytest.raises(TransferError, match="storing 400 B failed"):
        other.leave()
    copy.load()
    with pytest.raises(TransferError, match="loading 400 B failed"):
        copy.arrive()
    assert torch.equal(second, expected)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals of threads")
def test_an_interrupt_in_the_middle_of_a_copy(held, request):
    # A worker of a parallel test run ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    whole = torch.randn(100)
    expected = whole.clone()
    pool = pool_of(400)
    copy = pool.store(whole)

    def interrupt():
        time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.05)
        held.set()

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        copy.leave()
    assert torch.equal(whole, expected)
    del copy
    assert pool.live_bytes == 0
    there_and_back(pool, whole)
    assert torch.equal(whole, expected)


def test_thread_and_file_go_with_the_pool_and_with_the_process(tmp_path):
    slow = SlowMemory(bytes_per_s=1e12, folder=tmp_path)
    pool = pool_of(400, slow)
    there_and_back(pool, torch.randn(100))
    number = pool._copy_engine._file._number
    assert list(tmp_path.iterdir()) == []  # it has no name at any time
    del pool
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    code = (
        "import torch, pathlib, sys\n"
        "from neaptide.copy_engines.file_copy_engine import FileCopyEngine\n"
        "from neaptide.copy_engines.host_pool import HostPool\n"
        "from neaptide.copy_engines.copy_engine import SlowMemory\n"
        "pool = HostPool(400, FileCopyEngine(400, SlowMemory(folder=pathlib.Path(sys.argv[1]))))\n"
        "copy = pool.store(torch.randn(100))\n"
        "print('stored')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120, check=True
    )
    assert (ended.stdout, ended.stderr) == ("stored\n", "")
    assert list(tmp_path.iterdir()) == []
