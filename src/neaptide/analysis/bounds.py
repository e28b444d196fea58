"""Lower bounds on peak memory: what no order, or no order with recomputation, can go below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from neaptide.analysis.loops import NOTHING_IN_BODIES, Binding, InBodies, trips
from neaptide.analysis.sizes import evaluate_storage_bytes, main_device, node_device
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
    facts = _Facts(graph, binding, workspace, storage_bytes, device, lower_bound_bytes, in_bodies)
    most = sum(facts.size(s) for s in facts.outputs)
    for node in graph.nodes:
        there = (
            min(facts.size(s), in_parts.get((node.id, s), facts.size(s))) for s in facts.touched[node.id]
        )
        most = max(most, sum(there) + facts.scratch[node.id])
    return facts.resident + most


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
    facts = _Facts(graph, binding, workspace, storage_bytes, device, order_lower_bound_bytes, in_bodies)
    sizes = [facts.size(s.id) for s in graph.storages]
    return facts.resident + most_forced_bytes(
        facts.created, facts.touched, facts.outputs, predecessors(graph), sizes, facts.scratch
    )


def most_forced_bytes(
    created: Sequence[Iterable[int]],
    touched: Sequence[Iterable[int]],
    outputs: Iterable[int],
    before: Sequence[Iterable[int]],
    sizes: Sequence[int],
    scratch: Sequence[int],
) -> int:
    """Bytes that the worst node forces to be there in any order: see `order_lower_bound_bytes`.

    Args:
        created: by node, in a legal order, the storages that it creates.
        touched: by node, the storages that it needs or makes, of those that a node creates.
    """
    made = [_mask(storages) for storages in created]
    for node, earlier in enumerate(before):
        for other in earlier:
            made[node] |= made[other]
    kept = _mask(outputs)
    needed = [kept | _mask(storages) for storages in touched]
    for node in reversed(range(len(needed))):
        for other in before[node]:
            needed[other] |= needed[node]
    weights = np.array(sizes, dtype=np.int64)
    forced = [_weight(m & n, weights) + s for m, n, s in zip(made, needed, scratch, strict=True)]
    return max(_weight(kept, weights), *forced) if forced else _weight(kept, weights)


class _Facts:
    """Sizes and uses of the storages that the program creates on one device."""

    def __init__(
        self,
        graph: Graph,
        binding: Mapping[str, int] | None,
        workspace: Mapping[int, int] | None,
        storage_bytes: Mapping[int, int] | None,
        device: str | None,
        bound: Callable[..., int],
        in_bodies: InBodies,
    ) -> None:
        sizes = evaluate_storage_bytes(graph, binding, storage_bytes)
        where = device if device is not None else main_device(graph, sizes)
        owned = set(graph.input_storages())
        self._counted = [0 if s.id in owned or s.device != where else sizes[s.id] for s in graph.storages]
        self.resident = sum(sizes[s] for s in owned if graph.storages[s].device == where)
        self.outputs = set(graph.output_storages()) - owned
        self.created = [set(graph.created_storages(node)) for node in graph.nodes]
        self.touched = []
        for node in graph.nodes:
            values = (*needed_inputs(graph, node), *node.outputs)
            self.touched.append({s for v in values if (s := graph.values[v].storage) is not None} - owned)
        scratch = {**least_loop_bytes(graph, binding, bound, in_bodies), **(workspace or {})}
        self.scratch = [
            scratch.get(node.id, 0) if node_device(graph, node) == where else 0 for node in graph.nodes
        ]

    def size(self, storage: int) -> int:
        """Bytes that count on the device beyond what is resident."""
        return self._counted[storage]


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
                resident = sum(nbytes[s] for s in owned if loop.body.storages[s].device == device)
                found = bound(
                    loop.body,
                    binding=sizes,
                    workspace=known.own_workspace,
                    storage_bytes=known.own_storages,
                    in_bodies=known,
                )
                least[node.id] = max(least.get(node.id, 0), found - resident)
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
