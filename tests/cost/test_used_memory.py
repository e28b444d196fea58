"""Memory that was touched before: what is allocated within touches few pages, and nothing stays behind."""

import subprocess
import sys
import weakref
from mmap import PAGESIZE

import pytest

# ruff: noqa: E402  (what follows needs torch, which is an extra)
torch = pytest.importorskip("torch")

from neaptide.cost import used_memory as module
from neaptide.cost.used_memory import used_memory

BLOCK_BYTES = 24 * 2**20

TOUCHES = f"""
import torch
from neaptide.cost.host import page_faults
from neaptide.cost.used_memory import used_memory
with used_memory({4 * BLOCK_BYTES}):
    torch.empty({BLOCK_BYTES}, dtype=torch.uint8).fill_(1)
    before = page_faults()
    for _ in range(20):
        torch.empty({BLOCK_BYTES}, dtype=torch.uint8).fill_(1)
    print(page_faults() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a matter of this system's allocator")
def test_blocks_within_are_of_pages_that_were_touched():
    # What the heap of this process looks like is anybody's, and a hole of it may give way to fresh pages once or twice.
    ran = subprocess.run([sys.executable, "-c", TOUCHES], capture_output=True, text=True, check=True)
    assert int(ran.stdout) * PAGESIZE < 20 * BLOCK_BYTES / 4


def test_no_block_stays(monkeypatch):
    kept = []
    blocks = module._blocks

    def seen(count):
        found = blocks(count)
        kept.extend(map(weakref.ref, found))
        return found

    monkeypatch.setattr(module, "_blocks", seen)
    with used_memory(BLOCK_BYTES):
        assert sum(block() is not None for block in kept) == 1
    assert not any(block() is not None for block in kept)


@pytest.mark.parametrize(("nbytes", "expected"), [(0, 1), (module._SMALL_BYTES, 1), (module._BLOCK_BYTES, 2)])
def test_as_many_blocks_are_touched_as_are_asked_for(monkeypatch, nbytes, expected):
    asked = []
    monkeypatch.setattr(module, "_blocks", lambda count: asked.append(count) or [torch.empty(8)] * count)
    with used_memory(nbytes):
        pass
    assert asked == [expected, expected]


def test_no_more_is_touched_than_a_part_of_what_is_free(monkeypatch):
    asked = []
    monkeypatch.setattr(module, "_blocks", lambda count: asked.append(count) or [torch.empty(8)] * count)
    monkeypatch.setattr(module.host, "memory_available_bytes", lambda: 16 * module._BLOCK_BYTES)
    with used_memory(10**12):
        pass
    assert asked == [3, 3]
