"""How the op tables are written: many names with the same meaning as one block of text.

A block holds tokens such as `add.Tensor,Scalar`, each of them a base name and its overloads. Two conventions of
ATen's own naming say what an overload overwrites, so that most rows need no more than their name:

* a base that ends in one underscore overwrites its first argument: `add_.Tensor`;
* an overload `out`, or one that ends in `_out`, overwrites the keyword argument `out`; when its results have other
  names they follow the overload: `topk.values=values+indices`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from neaptide.ir.registry import Call, OpSpec, Replay, SizeRule, Trait, no_bytes
from neaptide.ops.traffic import traffic
from neaptide.symbolic.size_expr import SizeExpr

Position = int | str


@dataclass(frozen=True, slots=True)
class Overload:
    """A full name such as `aten.add.out` and the arguments that its spelling says it overwrites."""

    name: str
    writes: tuple[Position, ...]


def overloads(text: str, namespace: str = "aten") -> Iterator[Overload]:
    """The overloads that a block of text lists, in its order. O(length).

    Raises:
        ValueError: a token without a dot.

    >>> [o.name for o in overloads("add.Tensor,Scalar add_.Tensor")]
    ['aten.add.Tensor', 'aten.add.Scalar', 'aten.add_.Tensor']
    >>> [o.writes for o in overloads("relu_.default relu.out topk.values=values+indices")]
    [(0,), ('out',), ('values', 'indices')]
    """
    for token in text.split():
        base, dot, rest = token.partition(".")
        if not dot:
            raise ValueError(f"{token!r} names no overload")
        for item in rest.split(","):
            overload, _, results = item.partition("=")
            yield Overload(f"{namespace}.{base}.{overload}", _writes(base, overload, results))


def _writes(base: str, overload: str, results: str) -> tuple[Position, ...]:
    if results:
        return tuple(results.split("+"))
    if overload == "out" or overload.endswith("_out"):
        return ("out",)
    return (0,) if base.endswith("_") and not base.endswith("__") else ()


def declare(
    text: str,
    *traits: Trait,
    namespace: str = "aten",
    writes: tuple[Position, ...] | None = None,
    writes_if: Callable[[Call], tuple[Position, ...]] | None = None,
    rng: bool = False,
    rng_if: Callable[[Call], bool] | None = None,
    host: bool = False,
    shape_only: tuple[Position, ...] = (),
    flops: SizeRule = no_bytes,
    bytes_moved: SizeRule | None = None,
    workspace: SizeRule = no_bytes,
    storage_bytes: Callable[[Call], Mapping[int, SizeExpr]] | None = None,
    deterministic: bool = True,
    replay: Replay | None = None,
) -> Iterator[OpSpec]:
    """One row for each overload in `text`, all with the same meaning; the fields are those of `OpSpec`.

    Without `writes`, what is overwritten follows from the name; without `bytes_moved` every tensor is read once and
    every result written once.
    """
    for overload in overloads(text, namespace):
        written = overload.writes if writes is None else writes
        yield OpSpec(
            name=overload.name,
            traits=frozenset(traits),
            writes=written,
            writes_if=writes_if,
            rng=rng,
            rng_if=rng_if,
            host=host,
            shape_only=shape_only,
            flops=flops,
            bytes_moved=traffic(written) if bytes_moved is None else bytes_moved,
            workspace=workspace,
            storage_bytes=storage_bytes,
            deterministic=deterministic,
            replay=replay,
        )
