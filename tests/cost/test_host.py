"""What the system says of the processor's caches."""

import pytest

from neaptide.cost import host


@pytest.fixture
def caches(tmp_path, monkeypatch):
    """Writes what the system says of a cache."""
    monkeypatch.setattr(host, "_CACHES", tmp_path)
    host.last_cache.cache_clear()
    yield lambda index, **said: write(tmp_path / f"index{index}", said)
    host.last_cache.cache_clear()


def write(folder, said):
    folder.mkdir()
    for name, text in said.items():
        (folder / name).write_text(f"{text}\n")


def test_the_last_cache_is_that_of_the_highest_level(caches):
    caches(0, level=1, size="48K", shared_cpu_list="0")
    caches(1, level=3, size="32768K", shared_cpu_list="0-3,8")
    caches(2, level=2, size="1024K", shared_cpu_list="0")
    assert host.last_cache() == (32 * 2**20, 5)


def test_where_nothing_is_told_it_is_a_usual_size(caches):
    caches(0, level=3, size="many", shared_cpu_list="0")
    caches(1, level=3)
    assert host.last_cache() == (host._USUAL_CACHE_BYTES, 1)
