"""Rows of the operations on the state of a random generator: each takes its place in the order of draws."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.registry import OpSpec
from neaptide.ops.traffic import output_traffic


def rows() -> Iterator[OpSpec]:
    """Reading the state, setting it, and making it of a seed."""
    yield OpSpec(name="neaptide.get_rng_state.default", rng=True, bytes_moved=output_traffic)
    yield OpSpec(name="neaptide.set_rng_state.default", rng=True)
    yield OpSpec(name="neaptide.manual_seed.default", rng=True)
