"""A meter that keeps what it saw at each operator."""

from __future__ import annotations

from neaptide.runtime.measuring.meter import LiveBytesMeter


class TimelineMeter(LiveBytesMeter):
    """`timeline` has (operator, bytes live once its outputs exist) in order of execution."""

    def __init__(self, resident=()):
        super().__init__(resident)
        self.timeline = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        outputs = super().__torch_dispatch__(func, types, args, kwargs)
        self.timeline.append((str(func), self.live_bytes))
        return outputs
