"""Python that answers differently from call to call: refused at its line, or its answer really varies when planned.

Each kind is a small training step: a line of a table, or a method that carries the mark HERE on the lines that an error
may name.
"""

from __future__ import annotations

import array
import collections
import contextvars
import ctypes
import dataclasses
import datetime as dt
import functools
import itertools
import pathlib
import random
import shelve
import socket
import sqlite3
import sys
import threading
import time
import types
from datetime import datetime as moment
from time import time as now

import numpy as np
import torch
from torch import nn

NUMBERS = itertools.count()
LOCAL = threading.local()
CONTEXT = contextvars.ContextVar("CONTEXT", default=1.0)
GLOBAL_GENERATOR = np.random.default_rng(3)


@dataclasses.dataclass(slots=True)
class Noise:
    """A user's data class with a generator in a slot."""

    generator: np.random.Generator

    def level(self):
        return self.generator.random()


class Warm:
    """Counts in an attribute of its class, in a property and in a set."""

    total = 0

    def __init__(self):
        self.reads = 0
        self.seen = set()

    @property
    def rate(self):
        self.reads += 1
        return 1.0 / self.reads

    @property
    def number_seen(self):
        self.seen.add(len(self.seen))  # HERE
        return len(self.seen)

    def count(self):
        Warm.total += 1
        return Warm.total


def library_object(**attributes):
    """An object of a class that an installed library defines, with those attributes."""
    made = types.ModuleType("a_library")
    made.__file__ = str(pathlib.Path(np.__file__).parent / "a_library.py")
    source = """
import time

class Sampler:
    calls = 0

    def sample(self):
        return self.random_state.random()

    def count(self):
        self.calls += 1
        return self.calls

    def clock(self):
        return time.perf_counter_ns() % 1_000_003
"""
    exec(compile(source, made.__file__, "exec"), vars(made))
    sys.modules["a_library"] = made
    sampler = made.Sampler()
    vars(sampler).update(attributes)
    return sampler


class Noisy(torch.autograd.Function):
    """The same numbers; in its backward, a number of a library's clock."""

    @staticmethod
    def forward(ctx, x, sampler):
        ctx.sampler = sampler
        return x * 1.0

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.sampler.clock(), None  # HERE


class NoisyDescent(torch.optim.SGD):
    """A user's optimizer whose update takes a number of a library's clock."""

    sampler = None

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(self.sampler.clock())  # HERE
        return super().step(closure)


def remembered():
    @functools.lru_cache
    def level(key):
        return key * 0.5

    return level


class Steps:
    """A step for each kind; `scaled(x, number)` is a training step whose loss is scaled by the number."""

    def __init__(self, folder):
        LOCAL.calls = Warm.total = 0
        torch.manual_seed(0)
        self.model = nn.Linear(4, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.generator = np.random.default_rng(0)
        self.old_generator = np.random.RandomState(0)
        self.python_generator = random.Random(0)
        self.bits = np.random.PCG64(0)
        self.draw = np.random.default_rng(1).normal
        self.tick = itertools.count().__next__
        self.noisy = NoisyDescent(self.model.parameters(), lr=0.1)
        NoisyDescent.sampler = self.sampler = library_object(random_state=np.random.RandomState(5))
        self.noise = Noise(np.random.default_rng(2))
        self.pool = [np.random.default_rng(4)]
        self.deep_sampler = library_object(inner={"parts": [library_object(random_state=random.Random(6))]})
        self.array = np.ones(3)
        self.part = self.array[1:]
        self.bytes = bytearray(3)
        self.packed = array.array("d", [1.0, 2.0])
        self.view = memoryview(bytearray(2))
        self.c_numbers = (ctypes.c_int * 2)()
        self.members = {1}
        self.queue = collections.deque([1.0, 2.0])
        self.tally = collections.Counter()
        self.numbers = itertools.count()
        self.cycle = itertools.cycle([0.5, 2.0])
        self.lines = (float(n) for n in range(9))
        self.warm = Warm()
        self.clock = time.perf_counter
        self.clocks = (time.monotonic, 3)
        self.level = remembered()
        self.day = moment(2020, 1, 1, tzinfo=dt.UTC)
        self.file = folder / "level.txt"
        self.file.write_text("0.5")
        self.shelf = shelve.open(str(folder / "shelf"))  # noqa: SIM115
        self.shelf["level"] = 0.5
        self.base = sqlite3.connect(":memory:")
        self.ends = socket.socketpair()

    def close(self):
        self.shelf.close()
        self.base.close()
        for end in self.ends:
            end.close()

    def scaled(self, x, number):
        loss = (self.model(x) * number).square().mean()
        loss.backward()  # HERE
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def generator_in_a_slot(self, x):
        number = self.noise.level()
        return self.scaled(x, number)

    def shuffled_order(self, x):
        rows = self.generator.permutation(len(x)).tolist()  # HERE
        return self.scaled(x[rows], 1.0)

    def drawn_tensor_decides(self, x):
        if torch.randint(2, ()).item():  # HERE
            return self.scaled(x, 2.0)
        return self.scaled(x, 1.0)

    def clock_by_name(self, x):
        number = float(now())  # HERE
        return self.scaled(x, number)

    def clock_is_returned(self, x):
        began = time.perf_counter()  # HERE
        return self.scaled(x, 1.0), time.perf_counter() - began  # HERE

    def clock_decides(self, x):
        began = time.perf_counter()
        loss = self.scaled(x, 1.0)
        if time.perf_counter() - began > 60:  # HERE
            loss = loss * 2
        return loss

    def reads_a_file(self, x):
        with open(self.file) as lines:  # noqa: PTH123  HERE
            return self.scaled(x, float(lines.read()))

    def opens_a_socket(self, x):
        with socket.socket():  # HERE
            return self.scaled(x, 1.0)

    def reads_a_socket(self, x):
        self.ends[0].setblocking(False)  # HERE
        return self.scaled(x, 1.0)

    def clock_of_a_library(self, x):
        number = self.sampler.clock()
        return self.scaled(x * number, 1.0)  # HERE

    def hits_of_a_cache(self, x):
        self.level(1)
        return self.scaled(x + self.level.cache_info().hits, 1.0)  # HERE

    def operation_by_a_counter(self, x):
        out = self.model(x)
        if self.tick() % 2:
            out = out.sin()  # HERE
        return out.cos().sum()  # HERE

    def clock_in_an_update(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        self.noisy.step()
        self.noisy.zero_grad()
        return loss.detach()

    def times_for_nobody(self, x):
        began = time.perf_counter()
        loss = self.scaled(x, 1.0)
        spent = (time.perf_counter() - began) * 1e3
        if self.array is None:
            print(spent)  # noqa: T201
        return loss

    def draws_aside(self, x):
        with torch.random.fork_rng(devices=[]):
            share = torch.rand(())
        return self.scaled(x, share + torch.rand(()))

    def draws_the_same_twice(self, x):
        state = torch.get_rng_state()
        share = torch.rand(())
        torch.set_rng_state(state)
        return self.scaled(x + torch.rand(()) - share, torch.rand(()))

    def seeds_torch(self, x):
        torch.manual_seed(2**64 - 3)
        share = torch.rand(())
        torch.random.manual_seed(-3)
        return self.scaled(x, share + torch.rand(()))

    def seeds_torch_with_a_count(self, x):
        LOCAL.calls += 1
        torch.manual_seed(LOCAL.calls * 3)
        return self.scaled(x, torch.rand(()))

    def keys_by_identity(self, x):
        weights = {id(p): p for p in (self.model.weight, self.model.bias, self.model.weight)}
        return self.scaled(x, sum(w.square().mean() for w in weights.values()))

    def counts_in_the_thread(self, x):
        LOCAL.calls += 1
        return self.scaled(x, LOCAL.calls)

    def turns_a_queue(self, x):
        self.queue.rotate()
        return self.scaled(x, self.queue[0])

    def left(self):
        """The numbers that it counts in."""
        return LOCAL.calls, Warm.total, self.warm.reads, *self.queue


ELSEWHERE = {
    "remembers_in_a_property": Warm.number_seen.fget,
    "generator_in_a_slot": Noise.level,
    "clock_in_a_backward": Noisy.backward,
    "clock_in_an_update": NoisyDescent.step,
}
