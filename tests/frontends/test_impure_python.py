"""Python that answers differently from call to call: refused at its line, or its answer really varies when planned.

Each kind is a small training step. What is refused carries the mark HERE on the line that the error has to name.
"""

from __future__ import annotations

import array
import collections
import contextvars
import ctypes
import dataclasses
import datetime as dt
import functools
import gc
import inspect
import itertools
import os
import pathlib
import random
import secrets
import shelve
import socket
import sqlite3
import sys
import threading
import time
import timeit
import types
import uuid
import weakref
from datetime import datetime as moment
from os import urandom
from time import time as now

import numpy as np
import pytest
import torch
from torch import nn

from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step
from step_checks import planned
from together import together

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

    # -- random generators ----------------------------------------------------------------------------------

    def numpy_generator(self, x):
        return self.scaled(x, self.generator.random())  # HERE

    def numpy_random_state(self, x):
        return self.scaled(x, self.old_generator.rand())  # HERE

    def numpy_bit_generator(self, x):
        return self.scaled(x, 1 + self.bits.random_raw() % 2)  # HERE

    def python_random(self, x):
        return self.scaled(x, self.python_generator.random())  # HERE

    def generator_of_the_module(self, x):
        return self.scaled(x, GLOBAL_GENERATOR.random())  # HERE

    def bound_method_of_a_generator(self, x):
        return self.scaled(x, self.draw())  # HERE

    def generator_in_a_slot(self, x):
        number = self.noise.level()
        return self.scaled(x, number)

    def generator_in_a_list(self, x):
        return self.scaled(x, self.pool[0].random())  # HERE

    def generator_of_a_library_object(self, x):
        return self.scaled(x, self.sampler.sample())  # HERE

    def generator_deep_in_library_objects(self, x):
        return self.scaled(x, self.deep_sampler.inner["parts"][0].sample())  # HERE

    def tensor_of_a_drawn_number(self, x):
        return self.scaled(x, torch.tensor(self.generator.random()))  # HERE

    def shuffled_order(self, x):
        rows = self.generator.permutation(len(x)).tolist()  # HERE
        return self.scaled(x[rows], 1.0)

    def rarely_decides(self, x):
        return self.scaled(x, 2.0 if self.generator.random() < 1e-9 else 1.0)  # HERE

    def fresh_numpy_generator(self, x):
        return self.scaled(x, np.random.default_rng().random())  # HERE

    def fresh_python_generator(self, x):
        return self.scaled(x, random.Random().random())  # HERE

    def system_generator(self, x):
        return self.scaled(x, random.SystemRandom().random())  # HERE

    def initial_seed(self, x):
        return self.scaled(x, torch.initial_seed() % 5)  # HERE

    def drawn_tensor_decides(self, x):
        if torch.randint(2, ()).item():  # HERE
            return self.scaled(x, 2.0)
        return self.scaled(x, 1.0)

    # -- entropy, clocks ------------------------------------------------------------------------------------

    def entropy(self, x):
        return self.scaled(x, os.urandom(1)[0])  # HERE

    def entropy_by_name(self, x):
        return self.scaled(x, urandom(1)[0])  # HERE

    def new_uuid(self, x):
        return self.scaled(x, uuid.uuid4().int % 7)  # HERE

    def uuid_of_the_clock(self, x):
        return self.scaled(x, uuid.uuid1().int % 7)  # HERE

    def secret(self, x):
        return self.scaled(x, secrets.token_bytes(1)[0])  # HERE

    def clock_in_a_tensor(self, x):
        return self.scaled(x, torch.tensor(time.time()))  # HERE

    def clock_by_name(self, x):
        number = float(now())  # HERE
        return self.scaled(x, number)

    def clock_times_a_tensor(self, x):
        return self.scaled(x * time.monotonic(), 1.0)  # HERE

    def clock_in_an_attribute(self, x):
        return self.scaled(x, 1.0 if self.clock() > 1e12 else 2.0)  # HERE

    def clock_in_a_tuple(self, x):
        return self.scaled(x, 1.0 if self.clocks[0]() > 1e12 else 2.0)  # HERE

    def clock_of_another_module(self, x):
        return self.scaled(x, 1.0 if timeit.default_timer() > 1e12 else 2.0)  # HERE

    def clock_is_returned(self, x):
        began = time.perf_counter()  # HERE
        return self.scaled(x, 1.0), time.perf_counter() - began  # HERE

    def clock_decides(self, x):
        began = time.perf_counter()
        loss = self.scaled(x, 1.0)
        if time.perf_counter() - began > 60:  # HERE
            loss = loss * 2
        return loss

    def calendar(self, x):
        return self.scaled(x, dt.date.today().day)  # noqa: DTZ011  HERE

    def calendar_by_name(self, x):
        return self.scaled(x, moment.now().day)  # noqa: DTZ005  HERE

    def local_time(self, x):
        return self.scaled(x, time.localtime().tm_hour)  # HERE

    # -- the rest of the world --------------------------------------------------------------------------------

    def whole_environment(self, x):
        return self.scaled(x, len(os.environ))  # HERE

    def reads_a_file(self, x):
        with open(self.file) as lines:  # noqa: PTH123  HERE
            return self.scaled(x, float(lines.read()))

    def reads_a_path(self, x):
        return self.scaled(x, float(self.file.read_text()))  # HERE

    def reads_a_table(self, x):
        return self.scaled(x, float(np.loadtxt(self.file)))  # HERE

    def asks_for_a_file(self, x):
        return self.scaled(x, 2.0 if pathlib.Path("stop").exists() else 1.0)  # HERE

    def lists_files(self, x):
        return self.scaled(x, 1.0 + len(os.listdir(".")))  # noqa: PTH208  HERE

    def opens_a_socket(self, x):
        with socket.socket():  # HERE
            return self.scaled(x, 1.0)

    def reads_a_socket(self, x):
        self.ends[0].setblocking(False)  # HERE
        return self.scaled(x, 1.0)

    def reads_a_shelf(self, x):
        return self.scaled(x, self.shelf["level"])  # HERE

    def reads_a_data_base(self, x):
        return self.scaled(x, self.base.total_changes + 1)  # HERE

    def load_of_the_machine(self, x):
        return self.scaled(x, 1.0 + os.getloadavg()[0])  # HERE

    # -- the interpreter --------------------------------------------------------------------------------------

    def address_of_a_new_object(self, x):
        return self.scaled(x, id(object()) % 7)  # HERE

    def address_of_a_parameter(self, x):
        return self.scaled(x, id(self.model.weight) % 7)  # HERE

    def hash_of_a_parameter(self, x):
        return self.scaled(x, hash(self.model.weight) % 7)  # HERE

    def hash_of_a_new_object(self, x):
        return self.scaled(x, hash(object()) / 7)  # HERE

    def number_of_objects(self, x):
        return self.scaled(x, len(gc.get_objects()))  # HERE

    def weak_references(self, x):
        return self.scaled(x, 1 + weakref.getweakrefcount(self.model))  # HERE

    def references(self, x):
        return self.scaled(x, sys.getrefcount(self.model))  # HERE

    def depth_of_the_stack(self, x):
        return self.scaled(x, len(inspect.stack()))  # HERE

    def variable_of_the_caller(self, x):
        return self.scaled(x, sys._getframe(1).f_lineno)  # HERE

    # -- written state ------------------------------------------------------------------------------------------

    def writes_an_array(self, x):
        self.array += 1  # HERE
        return self.scaled(x, float(self.array[0]))

    def writes_part_of_an_array(self, x):
        self.part[0] = 0.5  # HERE
        return self.scaled(x, float(self.array[1]))

    def sorts_an_array(self, x):
        self.array.sort()  # HERE
        return self.scaled(x, float(self.array[0]))

    def writes_bytes(self, x):
        self.bytes[0] += 1  # HERE
        return self.scaled(x, self.bytes[0])

    def writes_packed_numbers(self, x):
        self.packed[0] += 1.0  # HERE
        return self.scaled(x, self.packed[0])

    def writes_a_view_of_bytes(self, x):
        self.view[0] += 1  # HERE
        return self.scaled(x, self.view[0])

    def writes_numbers_of_c(self, x):
        self.c_numbers[0] += 1  # HERE
        return self.scaled(x, self.c_numbers[0])

    def adds_to_a_set(self, x):
        self.members.add(len(self.members) + 1)  # HERE
        return self.scaled(x, len(self.members))

    def grows_a_queue(self, x):
        self.queue.append(3.0)  # HERE
        return self.scaled(x, self.queue[0])

    def tallies(self, x):
        self.tally["steps"] += 1  # HERE
        return self.scaled(x, self.tally["steps"])

    def counts_up(self, x):
        return self.scaled(x, next(self.numbers))  # HERE

    def counts_up_globally(self, x):
        return self.scaled(x, next(NUMBERS))  # HERE

    def turns_a_cycle(self, x):
        return self.scaled(x, next(self.cycle))  # HERE

    def draws_from_a_generator_expression(self, x):
        return self.scaled(x, next(self.lines))  # HERE

    def counts_in_a_context(self, x):
        CONTEXT.set(CONTEXT.get() + 1)  # HERE
        return self.scaled(x, CONTEXT.get())

    def counts_on_a_function(self, x):
        remembered.calls = getattr(remembered, "calls", 0) + 1  # HERE
        return self.scaled(x, remembered.calls)

    # -- named by a line elsewhere -----------------------------------------------------------------------------

    def remembers_in_a_property(self, x):
        return self.scaled(x, self.warm.number_seen)

    # -- seen because a second run differs --------------------------------------------------------------------

    def clock_of_a_library(self, x):
        number = self.sampler.clock()
        return self.scaled(x * number, 1.0)  # HERE

    def counter_of_a_library_object(self, x):
        return self.scaled(x * self.sampler.count(), 1.0)  # HERE

    def counter_behind_a_method_of_c(self, x):
        return self.scaled(x + self.tick(), 1.0)  # HERE

    def hits_of_a_cache(self, x):
        self.level(1)
        return self.scaled(x + self.level.cache_info().hits, 1.0)  # HERE

    def shape_by_a_counter(self, x):
        return self.scaled(x[: 1 + self.tick() % 3], 1.0)  # HERE

    def operation_by_a_counter(self, x):
        out = self.model(x)
        if self.tick() % 2:
            out = out.sin()  # HERE
        return out.cos().sum()  # HERE

    def literal_of_a_clock(self, x):
        return self.scaled(x * torch.tensor([1.0, self.sampler.clock()]).sum(), 1.0)  # HERE

    def result_of_a_counter(self, x):  # HERE
        return self.scaled(x, 1.0), {"count": self.tick()}

    def clock_in_a_backward(self, x):
        return self.scaled(Noisy.apply(self.model(x), self.sampler)[:, :1].expand(-1, 4), 1.0)

    def clock_in_an_update(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        self.noisy.step()
        self.noisy.zero_grad()
        return loss.detach()

    def clock_behind_the_update(self, x):
        return self.scaled(x, 1.0) * self.sampler.clock()  # HERE

    # -- harmless -------------------------------------------------------------------------------------------------

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

    def holds_what_it_does_not_use(self, x):
        return self.scaled(x, float(len(self.clocks) + len(self.ends)))

    def remembers_pure_numbers(self, x):
        return self.scaled(x, self.level(len(x)))

    def draws_with_torch(self, x):
        return self.scaled(x, torch.rand(()) + torch.randint(3, (3,)))

    def keys_by_identity(self, x):
        weights = {id(p): p for p in (self.model.weight, self.model.bias, self.model.weight)}
        return self.scaled(x, sum(w.square().mean() for w in weights.values()))

    def asks_for_types_of_dates(self, x):
        return self.scaled(x, 2.0 if isinstance(self.day, dt.date) else moment(2020, 1, 2, tzinfo=dt.UTC).day)

    def reads_a_variable_of_the_environment(self, x):
        return self.scaled(x, float(os.environ.get("NEAPTIDE_TEST_LEVEL", "1")) + (os.getenv("HOME") is None))

    def counts_in_the_thread(self, x):
        LOCAL.calls += 1
        return self.scaled(x, LOCAL.calls)

    def counts_in_a_property(self, x):
        return self.scaled(x, self.warm.rate)

    def counts_in_a_class(self, x):
        return self.scaled(x, self.warm.count())

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
_KINDS = [
    name for name in vars(Steps) if not name.startswith("_") and name not in {"close", "scaled", "left"}
]
HARMLESS = _KINDS[_KINDS.index("times_for_nobody") :]
REFUSED = _KINDS[: _KINDS.index("times_for_nobody")]


@pytest.fixture
def steps(tmp_path):
    made = Steps(tmp_path)
    yield made
    made.close()


def marked_lines(function):
    lines, first = inspect.getsourcelines(function)
    marked = [first + i for i, line in enumerate(lines) if line.rstrip().endswith("HERE")]
    return marked or [first + len(lines) - 1]


STATEFUL = (
    "clock_of_a_library",
    "counter_of_a_library_object",
    "operation_by_a_counter",
    "clock_behind_the_update",
)


@pytest.mark.parametrize("name", STATEFUL)
def test_two_programs_are_compared_as_they_are(steps, name):
    """With an optimizer that has state, the first step and the later ones are traced anyway."""
    steps.optimizer = torch.optim.SGD(steps.model.parameters(), lr=0.1, momentum=0.9)
    with pytest.raises(CaptureError, match="another one at each call") as caught:
        capture_step(getattr(steps, name), (torch.randn(5, 4),))
    assert any(f"{__file__}:{line}:" in caught.value.where for line in marked_lines(getattr(Steps, name)))


@together("name", REFUSED, parts=4)
def test_impure_python_is_refused_at_its_line(steps, name):
    lines = marked_lines(ELSEWHERE.get(name, getattr(Steps, name)))
    with pytest.raises(CaptureError) as caught:
        capture_step(getattr(steps, name), (torch.randn(5, 4),))
    assert caught.value.where is not None
    assert any(caught.value.where.startswith(f"{__file__}:{line}:") for line in lines), caught.value.where
    assert caught.value.why
    assert caught.value.next_step


@together("name", HARMLESS)
def test_harmless_python_is_captured_and_agrees_with_eager(name, tmp_path, monkeypatch):
    batches = [torch.randn(5, 4) for _ in range(3)]
    results, left = [], []
    for folder, wrap in (("eager", lambda step: step), ("planned", lambda step: planned(step, batches[0]))):
        monkeypatch.delenv("NEAPTIDE_TEST_LEVEL", raising=False)
        (tmp_path / folder).mkdir()
        steps = Steps(tmp_path / folder)
        run = wrap(getattr(steps, name))
        torch.manual_seed(7)
        losses = []
        for call, batch in enumerate(batches):
            losses.append(run(batch))
            monkeypatch.setenv("NEAPTIDE_TEST_LEVEL", str(call + 2))
        results.append([*losses, *steps.model.parameters()])
        left.append([(type(number), number) for number in steps.left()])
        steps.close()
    assert left[0] == left[1]
    assert all(torch.equal(eager, found) for eager, found in zip(*results, strict=True))
