"""Rows of the operations on the state of a random generator: each takes its place in the order of draws."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.registry import OpSpec
from neaptide.ops.traffic import output_traffic


def rows() -> Iterator[OpSpec]:
    """Reading the state, and setting it."""
    yield OpSpec(name="neaptide.get_rng_state.default", rng=True, bytes_moved=output_traffic)
    yield OpSpec(name="neaptide.set_rng_state.default", rng=True)
