"""Fixtures that turn a call of a PyTorch op into what the rows are asked about, and watch what the op really does."""

import contextlib

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from neaptide.ops import registry
from ops.op_calls import make_call


@pytest.fixture(scope="session")
def record_call():
    """`make_call` itself, for calls whose result is made up."""
    return make_call


@pytest.fixture(scope="session")
def call_of():
    """Runs an op on tensors of any device, `meta` included, and returns its Call."""

    def run(op, *args, **kwargs):
        return make_call(op, args, kwargs, op(*args, **kwargs))

    return run


def _snapshot(tensors):
    return [(t, t.detach().clone()) for t in tensors]


def _changed(snapshot):
    return [t for t, before in snapshot if not torch.equal(t.detach().nan_to_num(), before.nan_to_num())]


class _Watch(TorchDispatchMode):
    """Compares every op that runs with its row: writes, random numbers, sizes of storages."""

    def __init__(self):
        super().__init__()
        self.unknown, self.hidden_writes, self.hidden_draws, self.wrong_sizes = set(), set(), set(), set()
        self.hidden_aliases, self.ops = set(), set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        row = registry().find(str(func))
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        # Bytes that nobody has written yet may be NaN by chance: `nan_to_num` in the comparison.
        before, stream = _snapshot(given), torch.get_rng_state()
        result = func(*args, **kwargs)
        name = str(func)
        self.ops.add(name)
        if row is None:
            self.unknown.add(name)
            return result
        call = make_call(func, args, kwargs, result)
        if not torch.equal(stream, torch.get_rng_state()) and not row.draws_random(call):
            self.hidden_draws.add(name)
        written = {
            self._key(t) for place in row.written_arguments(call) for t in self._at(place, args, kwargs)
        }
        if any(self._key(t) not in written for t in _changed(before)):
            self.hidden_writes.add(name)
        self._check_storages(row, call, result, given, written)
        return result

    @staticmethod
    def _key(tensor):
        return tensor.untyped_storage()._cdata

    @staticmethod
    def _at(place, args, kwargs):
        found = kwargs.get(place) if isinstance(place, str) else (args[place] if place < len(args) else None)
        return [t for t in tree_leaves(found) if isinstance(t, torch.Tensor)]

    def _check_storages(self, row, call, result, given, written):
        inputs = {self._key(t) for t in given}
        special = row.storage_bytes(call) if row.storage_bytes else {}
        fresh = {}
        for position, out in enumerate(t for t in tree_leaves(result) if isinstance(t, torch.Tensor)):
            if self._key(out) in inputs:
                if self._key(out) not in written and "view" not in row.traits:
                    self.hidden_aliases.add(row.name)
                continue
            shown = special[position].evaluate() if position in special else out.numel() * out.element_size()
            fresh.setdefault(self._key(out), [out.untyped_storage().nbytes(), 0])[1] += shown
        for real, predicted in fresh.values():
            if real != predicted:
                self.wrong_sizes.add(row.name)


@pytest.fixture(scope="session")
def watch():
    """A context manager under which every op is compared with its row; yields what was found."""

    @contextlib.contextmanager
    def watching():
        mode = _Watch()
        with mode:
            yield mode

    return watching
