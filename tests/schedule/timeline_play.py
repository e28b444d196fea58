"""Seconds of schedules with copies, played as events of three machines: shares no code with `schedule.timeline`."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from neaptide.analysis.loops import trips
from neaptide.cost.devices import Link

OUT, BACK = Link("device", "host", 8.0, 0.25), Link("host", "device", 4.0, 0.5)


@dataclass
class Task:
    """Something that takes time on one machine, after what it needs and after all queued there before it."""

    machine: str
    seconds: float
    needs: list[Task] = field(default_factory=list)
    begun: float | None = None
    ended: float | None = None


def run_events(tasks):
    """Play tasks with a queue of events: machines are idle or busy, and look for work whenever something ends."""
    queues = {}
    for task in tasks:
        queues.setdefault(task.machine, []).append(task)
    busy = dict.fromkeys(queues, False)
    events, number, now = [(0.0, -1, None)], 0, 0.0
    while events:
        now, _, done = heapq.heappop(events)
        if done is not None:
            done.ended = now
            busy[done.machine] = False
        for machine, queue in queues.items():
            if queue and not busy[machine] and all(need.ended is not None for need in queue[0].needs):
                task = queue.pop(0)
                task.begun, busy[machine] = now, True
                heapq.heappush(events, (now + task.seconds, number, task))
                number += 1
    return now


class Tasks:
    """A schedule as tasks of three machines; a wait is a task of the compute stream that takes no time.

    Trips of a loop that moves storages are tasks of their own, one trip after the other.
    """

    def __init__(self):
        self.all, self.compute = [], None

    def _on_compute(self, seconds, needs=()):
        behind = [] if self.compute is None else [self.compute]
        self.compute = Task("compute", seconds, [*behind, *needs])
        self.all.append(self.compute)
        return self.compute

    def add(self, schedule, seconds_of, bytes_of, loops=None):
        """The steps of a schedule.

        Args:
            schedule: its steps.
            seconds_of: of a step that runs a node.
            bytes_of: of a storage.
            loops: what adds the tasks of a step that runs a loop; falsy where the step is one task.
        """
        open_copies = {}
        for step in schedule.steps:
            key = (step.target, step.occurrence)
            if step.runs_node:
                if loops is None or not loops(step):
                    self._on_compute(seconds_of(step))
            elif step.kind == "wait":
                self._on_compute(0.0, [open_copies.pop(key)])
            else:
                machine, link = ("out", OUT) if step.kind == "store" else ("back", BACK)
                seconds = link.latency_s + bytes_of(step.target) / link.bandwidth_bytes_per_s
                task = Task(machine, seconds, [] if self.compute is None else [self.compute])
                open_copies[key] = task
                self.all.append(task)

    def add_graph(self, graph, schedule, seconds_of, binding=None, *, call_s):
        """The steps of a schedule with all trips of its loops; `seconds_of` is asked for a graph, a node and sizes.

        A trip begins with its calls: of the body, and of each part that is taken or filled.
        """
        sizes = binding or {}

        def unrolled(step):
            node = graph.nodes[step.target]
            if not node.regions:
                return False
            loop, inside = node.regions[0], schedule.bodies[node.id]
            calls = 1 + len(loop.slices) + len(loop.merges)
            for count, within in trips(graph, node, loop, sizes):
                for _ in range(count):
                    self._on_compute(calls * call_s)
                    self.add_graph(loop.body, inside, seconds_of, within, call_s=call_s)
            return True

        return self.add(
            schedule,
            lambda step: seconds_of(graph, graph.nodes[step.target], sizes),
            lambda storage: graph.storages[storage].nbytes.evaluate(sizes),
            unrolled,
        )
