"""Kinds of impure steps that are a line each, and what finds a kind and the lines that an error may name."""

from __future__ import annotations

import datetime as dt
import gc
import inspect
import os
import pathlib
import random
import secrets
import sys
import time
import timeit
import types
import uuid
import weakref
from os import urandom

import numpy as np
import torch

from frontends import impure_steps
from frontends.impure_steps import (
    CONTEXT,
    ELSEWHERE,
    GLOBAL_GENERATOR,
    NUMBERS,
    Noisy,
    Steps,
    moment,
    remembered,
)

REFUSED_LINES = {
    "numpy_generator": lambda self, x: self.scaled(x, self.generator.random()),
    "numpy_random_state": lambda self, x: self.scaled(x, self.old_generator.rand()),
    "numpy_bit_generator": lambda self, x: self.scaled(x, 1 + self.bits.random_raw() % 2),
    "python_random": lambda self, x: self.scaled(x, self.python_generator.random()),
    "generator_of_the_module": lambda self, x: self.scaled(x, GLOBAL_GENERATOR.random()),
    "bound_method_of_a_generator": lambda self, x: self.scaled(x, self.draw()),
    "generator_in_a_list": lambda self, x: self.scaled(x, self.pool[0].random()),
    "generator_of_a_library_object": lambda self, x: self.scaled(x, self.sampler.sample()),
    "generator_deep_in_library_objects": lambda self, x: self.scaled(
        x, self.deep_sampler.inner["parts"][0].sample()
    ),
    "tensor_of_a_drawn_number": lambda self, x: self.scaled(x, torch.tensor(self.generator.random())),
    "rarely_decides": lambda self, x: self.scaled(x, 2.0 if self.generator.random() < 1e-9 else 1.0),
    "fresh_numpy_generator": lambda self, x: self.scaled(x, np.random.default_rng().random()),
    "fresh_python_generator": lambda self, x: self.scaled(x, random.Random().random()),
    "system_generator": lambda self, x: self.scaled(x, random.SystemRandom().random()),
    "initial_seed": lambda self, x: self.scaled(x, torch.initial_seed() % 5),
    "entropy": lambda self, x: self.scaled(x, os.urandom(1)[0]),
    "entropy_by_name": lambda self, x: self.scaled(x, urandom(1)[0]),
    "new_uuid": lambda self, x: self.scaled(x, uuid.uuid4().int % 7),
    "uuid_of_the_clock": lambda self, x: self.scaled(x, uuid.uuid1().int % 7),
    "secret": lambda self, x: self.scaled(x, secrets.token_bytes(1)[0]),
    "clock_in_a_tensor": lambda self, x: self.scaled(x, torch.tensor(time.time())),
    "clock_times_a_tensor": lambda self, x: self.scaled(x * time.monotonic(), 1.0),
    "clock_in_an_attribute": lambda self, x: self.scaled(x, 1.0 if self.clock() > 1e12 else 2.0),
    "clock_in_a_tuple": lambda self, x: self.scaled(x, 1.0 if self.clocks[0]() > 1e12 else 2.0),
    "clock_of_another_module": lambda self, x: self.scaled(x, 1.0 if timeit.default_timer() > 1e12 else 2.0),
    "calendar": lambda self, x: self.scaled(x, dt.date.today().day),  # noqa: DTZ011
    "calendar_by_name": lambda self, x: self.scaled(x, moment.now().day),
    "local_time": lambda self, x: self.scaled(x, time.localtime().tm_hour),
    "whole_environment": lambda self, x: self.scaled(x, len(os.environ)),
    "reads_a_path": lambda self, x: self.scaled(x, float(self.file.read_text())),
    "reads_a_table": lambda self, x: self.scaled(x, float(np.loadtxt(self.file))),
    "asks_for_a_file": lambda self, x: self.scaled(x, 2.0 if pathlib.Path("stop").exists() else 1.0),
    "lists_files": lambda self, x: self.scaled(x, 1.0 + len(os.listdir("."))),  # noqa: PTH208
    "reads_a_shelf": lambda self, x: self.scaled(x, self.shelf["level"]),
    "reads_a_data_base": lambda self, x: self.scaled(x, self.base.total_changes + 1),
    "load_of_the_machine": lambda self, x: self.scaled(x, 1.0 + os.getloadavg()[0]),
    "address_of_a_new_object": lambda self, x: self.scaled(x, id(object()) % 7),
    "address_of_a_parameter": lambda self, x: self.scaled(x, id(self.model.weight) % 7),
    "hash_of_a_parameter": lambda self, x: self.scaled(x, hash(self.model.weight) % 7),
    "hash_of_a_new_object": lambda self, x: self.scaled(x, hash(object()) / 7),
    "number_of_objects": lambda self, x: self.scaled(x, len(gc.get_objects())),
    "weak_references": lambda self, x: self.scaled(x, 1 + weakref.getweakrefcount(self.model)),
    "references": lambda self, x: self.scaled(x, sys.getrefcount(self.model)),
    "depth_of_the_stack": lambda self, x: self.scaled(x, len(inspect.stack())),
    "variable_of_the_caller": lambda self, x: self.scaled(x, sys._getframe(1).f_lineno),
    "counts_up": lambda self, x: self.scaled(x, next(self.numbers)),
    "counts_up_globally": lambda self, x: self.scaled(x, next(NUMBERS)),
    "turns_a_cycle": lambda self, x: self.scaled(x, next(self.cycle)),
    "draws_from_a_generator_expression": lambda self, x: self.scaled(x, next(self.lines)),
    "remembers_in_a_property": lambda self, x: self.scaled(x, self.warm.number_seen),
    "counter_of_a_library_object": lambda self, x: self.scaled(x * self.sampler.count(), 1.0),
    "counter_behind_a_method_of_c": lambda self, x: self.scaled(x + self.tick(), 1.0),
    "shape_by_a_counter": lambda self, x: self.scaled(x[: 1 + self.tick() % 3], 1.0),
    "literal_of_a_clock": lambda self, x: self.scaled(
        x * torch.tensor([1.0, self.sampler.clock()]).sum(), 1.0
    ),
    "result_of_a_counter": lambda self, x: (self.scaled(x, 1.0), {"count": self.tick()}),
    "clock_in_a_backward": lambda self, x: self.scaled(
        Noisy.apply(self.model(x), self.sampler)[:, :1].expand(-1, 4), 1.0
    ),
    "writes_an_array": lambda self, x: (self.array.__iadd__(1), self.scaled(x, float(self.array[0]))),
    "writes_part_of_an_array": lambda self, x: (self.part.__setitem__(0, 0.5), self.scaled(x, 1.0)),
    "sorts_an_array": lambda self, x: (self.array.sort(), self.scaled(x, float(self.array[0]))),
    "writes_bytes": lambda self, x: (self.bytes.append(1), self.scaled(x, len(self.bytes))),
    "writes_packed_numbers": lambda self, x: (
        self.packed.__setitem__(0, 2.0),
        self.scaled(x, self.packed[0]),
    ),
    "writes_a_view_of_bytes": lambda self, x: (self.view.__setitem__(0, 1), self.scaled(x, self.view[0])),
    "writes_numbers_of_c": lambda self, x: (
        self.c_numbers.__setitem__(0, 1),
        self.scaled(x, self.c_numbers[0]),
    ),
    "adds_to_a_set": lambda self, x: (self.members.add(len(self.members) + 1), self.scaled(x, 2.0)),
    "grows_a_queue": lambda self, x: (self.queue.append(3.0), self.scaled(x, self.queue[0])),
    "tallies": lambda self, x: (self.tally.update(steps=1), self.scaled(x, self.tally["steps"])),
    "counts_in_a_context": lambda self, x: (CONTEXT.set(CONTEXT.get() + 1), self.scaled(x, CONTEXT.get())),
    "counts_on_a_function": lambda self, x: (
        setattr(remembered, "calls", getattr(remembered, "calls", 0) + 1),
        self.scaled(x, remembered.calls),
    ),
    "clock_behind_the_update": lambda self, x: self.scaled(x, 1.0) * self.sampler.clock(),
}
HARMLESS_LINES = {
    "holds_what_it_does_not_use": lambda self, x: self.scaled(x, float(len(self.clocks) + len(self.ends))),
    "remembers_pure_numbers": lambda self, x: self.scaled(x, self.level(len(x))),
    "draws_with_torch": lambda self, x: self.scaled(x, torch.rand(()) + torch.randint(3, (3,))),
    "asks_for_types_of_dates": lambda self, x: self.scaled(
        x, 2.0 if isinstance(self.day, dt.date) else moment(2020, 1, 2, tzinfo=dt.UTC).day
    ),
    "reads_a_variable_of_the_environment": lambda self, x: self.scaled(
        x, float(os.environ.get("NEAPTIDE_TEST_LEVEL", "1")) + (os.getenv("HOME") is None)
    ),
    "counts_in_a_property": lambda self, x: self.scaled(x, self.warm.rate),
    "counts_in_a_class": lambda self, x: self.scaled(x, self.warm.count()),
}

_METHODS = [name for name in vars(Steps) if name[0] != "_" and name not in {"close", "scaled", "left"}]
_FIRST_HARMLESS = _METHODS.index("times_for_nobody")
REFUSED = [*REFUSED_LINES, *_METHODS[:_FIRST_HARMLESS]]
HARMLESS = [*HARMLESS_LINES, *_METHODS[_FIRST_HARMLESS:]]
_LINES = REFUSED_LINES | HARMLESS_LINES


def step_of(steps, name):
    """The step of a kind, bound to objects of its own."""
    return types.MethodType(_LINES[name], steps) if name in _LINES else getattr(steps, name)


def lines_of(name):
    """The lines that an error about a kind may name, as `file:line:`."""
    if name in _LINES and name not in ELSEWHERE:
        return [f"{__file__}:{line}:" for *_, line in _LINES[name].__code__.co_lines()]
    lines, first = inspect.getsourcelines(ELSEWHERE.get(name) or getattr(Steps, name))
    marked = [i for i, line in enumerate(lines) if line.rstrip().endswith("HERE")] or [len(lines) - 1]
    return [f"{impure_steps.__file__}:{first + i}:" for i in marked]
