"""The rows of operations as they hold in graphs of FX."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from neaptide.ir.registry import OpRegistry, OpSpec, Trait
from neaptide.ops import registry


def rows() -> OpRegistry:
    """All rows; those declared by the user included."""
    return _of_fx(registry())


@cache
def _of_fx(known: OpRegistry) -> OpRegistry:
    """An operation takes the operand of which it needs the shape alone. Operations of Inductor's decompositions come along."""
    return OpRegistry([*(replace(row, shape_only=()) for row in known), *_of_inductor()])


def _of_inductor() -> Iterator[OpSpec]:
    """What draws takes a seed, and gives the same numbers for it."""
    yield OpSpec(
        "prims.inductor_seeds.default", traits=frozenset({Trait.FACTORY}), rng=True, deterministic=False
    )
    yield OpSpec(
        "prims.inductor_seed.default", traits=frozenset({Trait.FACTORY}), rng=True, deterministic=False
    )
    yield OpSpec("prims.inductor_lookup_seed.default", traits=frozenset({Trait.GATHER}))
    for name in ("inductor_random", "inductor_randint", "iota"):
        yield OpSpec(f"prims.{name}.default", traits=frozenset({Trait.FACTORY}))
    yield OpSpec("neaptide.kernel.default", traits=frozenset({Trait.ELEMENTWISE}))
    for name in ("convert_element_type", "fma", "device_put"):
        yield OpSpec(f"prims.{name}.default", traits=frozenset({Trait.ELEMENTWISE}))
