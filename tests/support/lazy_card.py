"""A card without a card: what streams are told is kept, and done later, in any order that streams and events allow."""

from __future__ import annotations

import random
from collections import deque

import torch

from neaptide.cost._torch_private import storage_identity


class Event:
    def __init__(self):
        self.happened = False


class Stream:
    """Tasks in order, each a function that says whether it could be done yet."""

    def __init__(self, card):
        self.tasks = deque()
        self.card = card

    def tell(self, work):
        self.tasks.append(lambda: (work(), True)[1])

    def record_event(self):
        event = Event()
        self.tell(lambda: setattr(event, "happened", True))
        return event

    def wait_event(self, event):
        self.tasks.append(lambda: event.happened)

    def wait_stream(self, other):
        self.wait_event(other.record_event())


class LazyCard:
    """Stands in for `Card`. Its memory is a few slots of one size, and a test says in which a storage lies."""

    def __init__(self, seed, slots, nbytes):
        self.random = random.Random(seed)
        self.streams = []
        self.current = self.new_stream()
        self.memory = torch.zeros(slots, nbytes, dtype=torch.uint8)
        self.slot_of = {}

    def current_stream(self):
        return self.current

    def new_stream(self):
        self.streams.append(Stream(self))
        return self.streams[-1]

    def block(self, nbytes):
        return torch.zeros(nbytes, dtype=torch.uint8)

    def bytes_of(self, storage):
        return self.memory[self.slot_of[storage_identity(storage)]]

    def place(self, storage, slot):
        """From now on a storage lies in a slot."""
        self.slot_of[storage_identity(storage)] = slot

    def fill(self, slot, number):
        """Have the current stream write a slot, as an operation would."""
        self.current.tell(lambda: self.memory[slot].fill_(number))

    def read(self, slot):
        """What the current stream finds in a slot when it comes to it."""
        found = torch.zeros_like(self.memory[0])
        self.current.tell(lambda: found.copy_(self.memory[slot]))
        return found

    def copy(self, stream, target, source):
        stream.tell(lambda: target.copy_(source))

    def work(self, most):
        """Do some of what can be done now, of streams at random."""
        for _ in range(most):
            waiting = [stream for stream in self.streams if stream.tasks]
            if not waiting:
                return
            stream = self.random.choice(waiting)
            if stream.tasks[0]():
                stream.tasks.popleft()

    def finish(self):
        """Do all that is left."""
        for _ in range(10_000):
            self.work(1)
        assert not any(stream.tasks for stream in self.streams), "a stream waits for what never comes"
