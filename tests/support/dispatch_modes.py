"""Modes that see each operator of a run: a meter that keeps what it saw, and one in which a step dies."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode

from neaptide.runtime.measuring.meter import LiveBytesMeter


class TimelineMeter(LiveBytesMeter):
    """`timeline` has (operator, bytes live once its outputs exist) in order of execution."""

    def __init__(self, persistent=()):
        super().__init__(persistent)
        self.timeline = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        outputs = super().__torch_dispatch__(func, types, args, kwargs)
        self.timeline.append((str(func), self.live_bytes))
        return outputs


class DiesAt(TorchDispatchMode):
    """Raises instead of the n-th operation; counts them all."""

    only_observes = True

    def __init__(self, number: int, error: type[BaseException] = RuntimeError) -> None:
        super().__init__()
        self.number, self.error, self.count = number, error, 0
        self.op = ""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        if self.count == self.number:
            self.op = str(func)
            raise self.error("the disk is on fire")
        return func(*args, **(kwargs or {}))
