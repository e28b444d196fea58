from __future__ import annotations

import pytest

from neaptide.copy_engines.copy_engine import SlowMemory
from neaptide.copy_engines.file_copy_engine import TokenBucket
from neaptide.errors import UsageError
from support.together import together


class Clock:
    now = 5.0

    def __call__(self):
        return self.now


def test_a_pause_that_was_too_long_is_made_up_for_within_the_copy():
    clock = Clock()
    bucket = TokenBucket(100.0, clock)
    bucket.begin()
    clock.now += bucket.pay(100) + 0.25
    assert bucket.pay(100) == pytest.approx(0.75)
    clock.now += 3.0
    assert bucket.pay(50) == 0.0
    bucket.begin()
    assert bucket.pay(50) == pytest.approx(0.5)


@together("wrong", [{"bytes_per_s": 0.0}, {"bytes_per_s": float("inf")}, {"capacity_bytes": -1}])
def test_a_memory_that_cannot_be_meant_is_refused(wrong):
    with pytest.raises(UsageError, match="is no "):
        SlowMemory(**wrong)
