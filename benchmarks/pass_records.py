"""States that sequences of passes make of generated graphs, measured once and kept: what is learned from and judged on.

A record is the archive of an exhaustive search, or of its beginning, without its graphs. A search over a record asks what the record knows, so that
strategies are compared on thousands of searches in the time of one.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from bench_record import say
from neaptide.frontends.onnx.reader import read_model
from neaptide.named_peers import peer
from neaptide.ops.onnx import registry
from neaptide.outcome import Limits, Stopwatch
from neaptide.planner.passes.graph_space import GraphSpace
from neaptide.planner.passes.search import search_passes
from neaptide.planner.passes.space import Measurement
from neaptide.schedule.order.of_model import model_problem
from neaptide.transform.passes import PASSES
from neaptide_corpus.onnx_families import FAMILIES, SEEDS, family_model

DEPTH: Final = 3
MOST_LEARNED: Final = 26
"""States of a record that is learned from: one pass, and some of two."""
MOST_JUDGED: Final = 90
"""States of a record that searches are judged on. The few graphs with more have those that the fewest passes lead to."""
SISTERS: Final = MappingProxyType(
    {
        "channel_fission_8": "channel_fission_4",
        "channel_fission_all": "channel_fission_4",
        "windows_2": "windows_4",
    }
)
"""Passes that records do without, with the one that stands for them: states would be three times as many."""
FOLDER: Final = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "neaptide" / "pass_records"
HELD_OUT: Final = tuple(range(3, SEEDS, 4))
"""Seeds that nothing is learned from."""


class Seen(msgspec.Struct, frozen=True):
    """A state of a record: `tried` leads to places in the record, -1 where a pass changed nothing."""

    nbytes: int
    depth: int
    facts: dict[str, tuple[float, ...]]
    tried: dict[str, int]
    counts: tuple[int, ...]


class Record(msgspec.Struct, frozen=True, dict=True):
    """A generated graph, and all that sequences of at most `DEPTH` passes make of it."""

    family: str
    seed: int
    passes: tuple[str, ...]
    states: tuple[Seen, ...]
    seconds: float  # of collecting it
    complete: bool

    @property
    def best_bytes(self) -> int:
        """The lowest footprint of all states."""
        return min(state.nbytes for state in self.states)

    @property
    def may_judge(self) -> bool:
        """Whether it has so many states that a search may miss the best."""
        return self.complete or len(self.states) > MOST_LEARNED

    @cached_property
    def lowest(self) -> tuple[tuple[int, ...], ...]:
        """By state, the lowest footprint within 0, 1, ... passes of it."""
        rows = [[state.nbytes] for state in self.states]
        for step in range(DEPTH):
            for number, state in enumerate(self.states):
                after = [rows[there][step] for there in state.tried.values() if there >= 0]
                rows[number].append(min([rows[number][step], *after]))
        return tuple(map(tuple, rows))


@dataclass(frozen=True)
class RecordedSpace:
    """A record as a space: a state is its number. Passes that were not tried within the record find no place."""

    record: Record
    start: int = 0

    def after(self, state: int, name: str) -> int | None:
        there = self.record.states[state].tried[name]
        return None if there < 0 else there

    def key(self, state: int) -> str:
        return str(state)

    def measure(self, state: int) -> Measurement:
        seen = self.record.states[state]
        facts = {name: some for name, some in seen.facts.items() if name in seen.tried}
        return Measurement(seen.nbytes, facts, seen.counts)


def _path(family: str, seed: int, folder: Path) -> Path:
    return folder / f"{family}_{seed}.json.gz"


def recorded(family: str, seed: int, folder: Path = FOLDER) -> Record:
    """The record of a generated graph, from the folder or by an exhaustive search."""
    path = _path(family, seed, folder)
    if path.exists():
        return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=Record)
    made = _collected(family, seed)
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(gzip.compress(msgspec.json.encode(made), 3))
    unfinished.replace(path)
    say(f"{family} {seed}: {len(made.states)} states, {made.seconds:.1f} s")
    return made


def records(
    families: Iterable[str] = tuple(FAMILIES),
    seeds: Sequence[int] = range(SEEDS),
    folder: Path = FOLDER,
    *,
    is_present: bool = False,
) -> list[Record]:
    """Records of some families; with `is_present`, only those that are in the folder."""
    return [
        recorded(family, seed, folder)
        for family in families
        for seed in seeds
        if not is_present or _path(family, seed, folder).exists()
    ]


def graph_space(family: str, seed: int) -> GraphSpace:
    """The graphs that passes make of a generated model."""
    rows = registry()
    graph = read_model(family_model(family, seed)).graph
    passes = {name: rule for name, rule in PASSES.items() if name not in SISTERS}
    return GraphSpace(graph, rows, passes, partial(model_problem, registry=rows))


def _collected(family: str, seed: int) -> Record:
    watch, space = Stopwatch(), graph_space(family, seed)
    strategy = peer("passes", "exhaustive").Exhaustive(DEPTH)
    outcome = search_passes(space, strategy, Limits(work=MOST_JUDGED if seed in HELD_OUT else MOST_LEARNED))
    states = tuple(
        Seen(
            entry.nbytes,
            entry.depth,
            dict(entry.measured.facts),
            {name: -1 if there is None else there for name, there in entry.tried.items()},
            entry.measured.counts,
        )
        for entry in outcome.require().entries
    )
    complete = outcome.termination.limit is None
    return Record(family, seed, space.passes, states, watch.seconds(), complete)


def split(found: Sequence[Record], held_out: Sequence[int] = HELD_OUT) -> Mapping[str, list[Record]]:
    """Records by what they are for: `training` and `held_out`."""
    by_use: dict[str, list[Record]] = {"training": [], "held_out": []}
    for record in found:
        by_use["held_out" if record.seed in held_out else "training"].append(record)
    return by_use
