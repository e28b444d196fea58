"""A small training step that reads a bit of everything, for changes between two of its calls."""

from __future__ import annotations

import array
import collections
import enum
import functools
import types
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.nn import functional

FACTOR = 1
OFFSETS = {"bias": 0}


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Settings:
    power: float = 1
    parts: list[float] = field(default_factory=lambda: [1, 2])
    color: Color = Color.RED


class Slotted:
    __slots__ = ("gain",)

    def __init__(self):
        self.gain = 1


class Knob:
    """A property over a private attribute, and an attribute of the class."""

    strength = 1

    def __init__(self):
        self._level = 1

    @property
    def level(self):
        return self._level

    def turned(self, value):
        return value * self.level * self.strength

    @classmethod
    def doubled(cls, value):
        return value * 2.0

    @staticmethod
    def halved(value):
        return value * 0.5


class Names:
    """A class that is nothing but a namespace."""

    alpha = 1


def scaled(value, by=1.0, *, shift=0.0):
    return value * by + shift


def looked_up(value):
    return scaled(value) + OFFSETS["bias"]


def counted(*values):
    return sum(values)


counted.weight = 1.0


class Net(nn.Module):
    gain = 1.0

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.act = nn.Tanh()
        self.drop = nn.Dropout(0.0)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 2)
        self.chain = nn.Sequential(nn.Tanh(), nn.Identity())
        self.slope = 1.0
        self.register_buffer("shift", torch.zeros(2))
        self.register_parameter("extra", None)

    def forward(self, x):
        hidden = self.drop(self.norm(self.act(self.first(x))))
        return self.head(functional.softplus(hidden)) * self.slope * self.gain + self.shift

    def head(self, hidden):
        out = self.chain(self.last(hidden))
        return out if self.extra is None else out * self.extra


def make_counter():
    count = 1.0

    def counter():
        return count

    def set_count(value):
        nonlocal count
        count = value

    return counter, set_count


class Case:
    """The step, with all that it reads; made twice it is twice the same."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = Net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.offset = torch.zeros(2)
        self.other = torch.ones(2)
        self.extra = [torch.zeros(2)]
        self.pair = (torch.zeros(2), torch.ones(2))
        self.number = 1.0
        self.table = {"a": 1, "b": 2}
        self.ordered = collections.OrderedDict(a=1, b=3)
        self.default = collections.defaultdict(lambda: 1, a=1)
        self.chained = collections.ChainMap({"a": 1}, {"b": 2})
        self.wrapped = collections.UserDict(a=1)
        self.listed = collections.UserList([1])
        self.queue = collections.deque([1, 2])
        self.set = {1, 2}
        self.frozen = frozenset({1})
        self.array = np.array([1, 2])
        self.packed = array.array("d", [1.0])
        self.bytes = bytearray(b"\x01\x02")
        self.behind = {"a": 1}
        self.proxy = types.MappingProxyType(self.behind)
        self.settings = Settings()
        self.slotted = Slotted()
        self.knob = Knob()
        self.space = types.SimpleNamespace(depth=1)
        self.nested = ({"deep": [1]}, 1)
        self.bound = functools.partial(scaled, by=1)
        self.function = scaled
        self.counter, self.set_count = make_counter()

    def numbers(self):
        found = [self.number, *self.table.values(), self.ordered["a"] * 2.0, self.default["a"]]
        found += [next(iter(self.ordered.values())), self.chained["a"], self.wrapped["a"], self.listed[0]]
        found += [self.queue[0], float(len(self.queue)), *sorted(self.set), *sorted(self.frozen)]
        found += [float(self.array[0]), self.packed[0], float(self.bytes[0]), self.proxy["a"]]
        found += [self.settings.power, *self.settings.parts, self.settings.color.value, self.slotted.gain]
        found += [self.knob.turned(1.0), self.knob.doubled(1.0), self.knob.halved(1.0), self.space.depth]
        found += [self.nested[0]["deep"][0], self.nested[1], self.bound(1.0), self.function(1.0)]
        found += [self.counter(), FACTOR, looked_up(1.0), Names.alpha, counted.weight]
        return counted(*found)

    def step(self, x):
        out = self.model(x) + self.offset
        for tensor in (*self.extra, *self.pair):
            out = out + tensor
        loss = out.square().mean() * (self.numbers() / 64.0)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def state(self):
        """All that a step changes."""
        found = dict(self.model.state_dict())
        for number, group in enumerate(self.optimizer.param_groups):
            for position, parameter in enumerate(group["params"]):
                found[f"{number}.{position}"] = parameter
                found[f"{number}.{position}.grad"] = parameter.grad
                for key, entry in self.optimizer.state.get(parameter, {}).items():
                    found[f"{number}.{position}.{key}"] = entry
        return found
