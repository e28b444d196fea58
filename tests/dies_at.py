"""A step that dies in the middle."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


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
