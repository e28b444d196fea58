"""Lower bounds on peak memory: what no order, or no order with recomputation, can go below."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from neaptide.analysis.loops import NOTHING_IN_BODIES, Binding, InBodies, trips
from neaptide.analysis.sizes import evaluate_storage_bytes, main_device, on_device
from neaptide.ir.dependencies import needed_inputs, predecessors
from neaptide.ir.graph import Graph

_WHOLE: Final[Mapping[tuple[int, int], int]] = MappingProxyType({})


def lower_bound_bytes(
    graph: Graph,
    *,
    binding: Mapping[str, int] | None = None,
    workspace: Mapping[int, int] | None = None,
    storage_bytes: Mapping[int, int] | None = None,
    device: str | None = None,
    in_bodies: InBodies = NOTHING_IN_BODIES,
    in_parts: Mapping[tuple[int, int], int] = _WHOLE,
) -> int:
    """No legal schedule, with any recomputation, has a lower peak. O(size of the graph).

    The largest of: what the caller owns plus one op with its operands, outputs and workspace; what the caller
    owns plus all outputs together. With an empty workspace it bounds the peak of storages alone; a workspace that
    is not given counts as none; a loop that is not in it is charged with this bound of its body, for which `in_bodies`
    has what is known beside its graph. `in_parts` has the bytes, by node and storage, that must be there of a storage while
    the node runs, where that may be less than all of it.
    """
    held, scratch = _held(graph, binding, workspace, storage_bytes, device, lower_bound_bytes, in_bodies)
    return held.least(scratch, in_parts)


def order_lower_bound_bytes(
    graph: Graph,
    *,
    binding: Mapping[str, int] | None = None,
    workspace: Mapping[int, int] | None = None,
    storage_bytes: Mapping[int, int] | None = None,
    device: str | None = None,
    in_bodies: InBodies = NOTHING_IN_BODIES,
) -> int:
    """No legal order of the nodes, each run once, has a lower peak. O(nodes x storages / 64).

    While a node runs, every storage is there that it or an ancestor creates and that it or a descendant needs,
    or that is an output. A loop whose workspace is not given is charged with this bound of its body. At least
    `lower_bound_bytes`.
    """
    held, scratch = _held(
        graph, binding, workspace, storage_bytes, device, order_lower_bound_bytes, in_bodies
    )
    return held.in_order(scratch)


@dataclass(frozen=True, slots=True)
class Held:
    """What nodes of a legal order create and touch, and outputs: storages by index, those of the caller without bytes."""

    created: Sequence[Iterable[int]]
    touched: Sequence[Iterable[int]]
    outputs: Collection[int]
    before: Sequence[Iterable[int]]
    sizes: Sequence[int]
    persistent_bytes: int

    @staticmethod
    def of(graph: Graph, sizes: tuple[int, ...], device: str) -> Held:
        """Of a graph with sizes of its storages, on a device. O(size of the graph)."""
        owned = set(graph.input_storages())
        touched = []
        for node in graph.nodes:
            values = (*needed_inputs(graph, node), *node.outputs)
            touched.append({s for v in values if (s := graph.values[v].storage) is not None} - owned)
        return Held(
            [graph.created_storages(node) for node in graph.nodes],
            touched,
            set(graph.output_storages()) - owned,
            predecessors(graph),
            [0 if s.id in owned or s.device != device else sizes[s.id] for s in graph.storages],
            sum(sizes[s] for s in owned if graph.storages[s].device == device),
        )

    def least(self, scratch: Sequence[int], in_parts: Mapping[tuple[int, int], int] = _WHOLE) -> int:
        """Bytes that no schedule has a lower peak than; see `lower_bound_bytes`."""
        sizes = self.sizes
        most = sum(sizes[s] for s in self.outputs)
        for node, storages in enumerate(self.touched):
            there = (min(sizes[s], in_parts.get((node, s), sizes[s])) for s in storages)
            most = max(most, sum(there) + scratch[node])
        return self.persistent_bytes + most

    def in_order(self, scratch: Sequence[int]) -> int:
        """Bytes that no schedule without recomputation has a lower peak than; see `order_lower_bound_bytes`."""
        made = [_mask(storages) for storages in self.created]
        for node, earlier in enumerate(self.before):
            for other in earlier:
                made[node] |= made[other]
        kept = _mask(self.outputs)
        needed = [kept | _mask(storages) for storages in self.touched]
        for node in reversed(range(len(needed))):
            for other in self.before[node]:
                needed[other] |= needed[node]
        weights = np.array(self.sizes, dtype=np.int64)
        forced = (_weight(m & n, weights) + s for m, n, s in zip(made, needed, scratch, strict=True))
        return self.persistent_bytes + max(_weight(kept, weights), *forced, 0)


def _held(
    graph: Graph,
    binding: Mapping[str, int] | None,
    workspace: Mapping[int, int] | None,
    storage_bytes: Mapping[int, int] | None,
    device: str | None,
    bound: Callable[..., int],
    in_bodies: InBodies,
) -> tuple[Held, tuple[int, ...]]:
    """With scratch bytes by node."""
    sizes = evaluate_storage_bytes(graph, binding, storage_bytes)
    where = device if device is not None else main_device(graph, sizes)
    scratch = {**least_loop_bytes(graph, binding, bound, in_bodies), **(workspace or {})}
    return Held.of(graph, sizes, where), on_device(graph, where, scratch)


def least_loop_bytes(
    graph: Graph,
    binding: Binding | None,
    bound: Callable[..., int],
    in_bodies: InBodies = NOTHING_IN_BODIES,
) -> dict[int, int]:
    """By loop, what its body cannot go below by one of the two bounds, beyond what the body is handed."""
    least: dict[int, int] = {}
    for node in graph.nodes:
        for loop in node.regions:
            known = in_bodies.within(node.id)
            owned = loop.body.input_storages()
            for _, sizes in trips(graph, node, loop, binding):
                nbytes = evaluate_storage_bytes(loop.body, sizes, None)
                device = main_device(loop.body, nbytes)
                persistent = sum(nbytes[s] for s in owned if loop.body.storages[s].device == device)
                found = bound(
                    loop.body,
                    binding=sizes,
                    workspace=known.own_workspace,
                    storage_bytes=known.own_storages,
                    in_bodies=known,
                )
                least[node.id] = max(least.get(node.id, 0), found - persistent)
    return least


def _mask(storages: Iterable[int]) -> int:
    mask = 0
    for storage in storages:
        mask |= 1 << storage
    return mask


def _weight(mask: int, sizes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    """Total size of the storages in a mask."""
    packed = np.frombuffer(mask.to_bytes((len(sizes) + 7) // 8, "little"), dtype=np.uint8)
    return int(np.unpackbits(packed, count=len(sizes), bitorder="little") @ sizes)
