"""Bytes of the states of random generators that a sequence keeps on the host, to draw the same numbers again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from neaptide.ir.graph import Graph

_RANDOM_STATE_BYTES: Final = {"cpu": 5056, "cuda": 16}


def random_state_bytes(graph: Graph, sequence: Sequence[int]) -> int:
    """Bytes on the host of the states under which draws of a sequence are repeated, were they kept all at once.

    A state is kept from the first draw to its last repetition. PyTorch's generator has 5,056 bytes on the CPU
    (mt19937) and 16 on CUDA (Philox: seed and offset). O(length of the sequence).
    """
    again = {node for node, runs in Counter(sequence).items() if runs > 1}
    streams = (graph.nodes[node].effects.rng for node in again)
    return sum(
        _RANDOM_STATE_BYTES.get(stream.partition(":")[0], 0) for stream in streams if stream is not None
    )
