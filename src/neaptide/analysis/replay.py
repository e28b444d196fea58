"""May a node run a second time, and if not, why not. The one place where that is decided.

Rules and their reasons: Chen et al. 2016 leave them out; PyTorch's partitioner lists most of them as bans.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Access, Node, refs
from neaptide.ir.registry import OpRegistry, OpSpec

STREAMS_WITH_STATE: Final = frozenset({"cpu", "cuda"})
"""Kinds of devices whose random generator can be asked for its state and be put back into it."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """What a repetition of a node reads and writes, or why there must be none.

    Attributes:
        refusal: empty when it may be repeated.
        writes: versions that a repetition makes, of storages that the program itself creates.
        random_stream: such as `cpu`; a repetition runs under the state that the stream had before the first execution,
            and leaves the stream as it finds it.
    """

    refusal: str
    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()
    random_stream: str | None = None

    @property
    def is_allowed(self) -> bool:
        return not self.refusal


def repeat_rule(graph: Graph, node: Node, registry: OpRegistry) -> Repeat:
    """Whether a node may be repeated so that its outputs are the same again and nothing else changes.

    A node that overwrites a storage of the program (an in-place activation) may be repeated as part of a replay
    of that storage: creator first, then its writers in order. A storage of the caller is never written again.
    One that draws random numbers draws the same ones again: a repetition is given the state that its generator had
    the first time, so it has no place in the order of draws. An operation without a row is never repeated.
    """
    spec = registry.find(node.op)
    effects = node.effects
    if spec is None:
        return Repeat(f"what {node.op} does is not known")
    if effects.rng is not None and effects.rng.partition(":")[0] not in STREAMS_WITH_STATE:
        return Repeat(f"draws random numbers on {effects.rng}, where the state of a generator cannot be kept")
    if effects.rng is not None and node.regions:
        return Repeat("draws random numbers in a loop")
    if effects.collective is not None:
        return Repeat("takes part in a collective")
    if effects.host:
        return Repeat("talks to the host")
    if not spec.deterministic and not registry.bits_may_vary:
        return Repeat("gives other bits on every run")
    if not effects.writes:
        return Repeat("", effects.reads, random_stream=effects.rng)
    if spec.replay is not None:
        rule = _stand_in(graph, node, spec, bits_may_vary=registry.bits_may_vary)
        return replace(rule, random_stream=effects.rng)
    owned = set(graph.input_storages())
    for access in effects.writes:
        if access.storage in owned:
            name = graph.storages[access.storage].name or f"storage {access.storage}"
            return Repeat(f"overwrites {name}, which the caller owns")
    if len(effects.writes) > 1:
        return Repeat("overwrites more than one storage")
    if graph.created_storages(node):
        return Repeat("overwrites a storage and creates another")
    return Repeat("", effects.reads, effects.writes, effects.rng)


def _stand_in(graph: Graph, node: Node, spec: OpSpec, *, bits_may_vary: bool) -> Repeat:
    """The rule of a node that is replayed by a pure stand-in, which sees only some of its arguments."""
    replay = spec.replay
    assert replay is not None
    device = next(
        (graph.storages[s].device for v in node.outputs if (s := graph.values[v].storage) is not None), ""
    )
    if not bits_may_vary and device.split(":")[0] not in replay.bitwise:
        return Repeat(
            f"its replay {replay.op} is not known to give the same bits on {device or 'this device'}"
        )
    seen = {
        graph.values[node.inputs[ref.slot]].storage
        for position in replay.positions
        if position is not None and position < len(node.args)
        for ref in refs(node.args[position])
    }
    return Repeat("", tuple(access for access in node.effects.reads if access.storage in seen))
