"""State of the caller that is on the host between two runs of a program: who holds its copies meanwhile."""

from __future__ import annotations

import torch

from neaptide.copy_engines.host_pool import HostCopy, HostPool, OwnedCopies
from neaptide.cost._torch_private import storage_identity


class WaitingState:
    """Copies of storages without bytes on their device, each kept until a program or somebody else asks for it.

    Programs call `agree` first, `take` before they load, and `keep` after the wait for the last store.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[str, HostCopy]] = {}
        self._taken = OwnedCopies()

    @property
    def nbytes(self) -> int:
        """That wait now."""
        return sum(copy.nbytes for _, copy in self._waiting.values())

    def agree(self, *wanted: tuple[str, torch.Tensor, HostPool]) -> None:
        """Have exactly these storages wait: what else waits is brought back, and what does not wait leaves now."""
        self._taken.clear()
        keys = {storage_identity(tensor.untyped_storage()) for _, tensor, _ in wanted}
        for key in [key for key in self._waiting if key not in keys]:
            name, copy = self._waiting[key]
            copy.load()
            copy.arrive()
            del self._waiting[key]
        for name, tensor, pool in wanted:
            if storage_identity(tensor.untyped_storage()) not in self._waiting:
                copy = pool.store(tensor, name)
                copy.leave()
                self.keep(name, copy)

    def take(self, tensor: torch.Tensor) -> HostCopy:
        """The copy of a storage, which its program loads."""
        name, copy = self._waiting.pop(storage_identity(tensor.untyped_storage()))
        self._taken.add(name, copy)
        return copy

    def keep(self, name: str, copy: HostCopy) -> None:
        """Hold a copy whose storage has left."""
        self._waiting[copy.storage] = name, copy

    def bring_back(self) -> tuple[str, ...]:
        """Have everything on the device again; the names of what is lost."""
        for name, copy in self._waiting.values():
            self._taken.add(name, copy)
        lost = self._taken.bring_back()
        self._waiting.clear()
        return lost
