"""What a call reads and changes, from its row in the op table. Shared by the builder and the frontends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from neaptide.ir.nodes import Arg, Ref, refs
from neaptide.ir.registry import Call, OpSpec, Trait


@dataclass(frozen=True, slots=True)
class CallEffects:
    """Effects of one call, as storages without versions (the builder knows the versions)."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    rng: str | None
    host: bool


def effects_of(spec: OpSpec, call: Call) -> CallEffects:
    """Effects of a call by its row. O(arguments).

    A view reads nothing: it hands the bytes on. The random stream is called after the device of the first output or
    input with a storage.
    """
    shape_only = {slot for key in spec.shape_only for slot in _slots(call, key)}
    used = {ref.slot for _, arg in _arguments(call) for ref in refs(arg)} - shape_only
    operands = [value.storage for value in call.inputs()]
    reads: dict[int, None] = {}
    if not spec.is_a(Trait.VIEW):
        for slot in sorted(used):
            if (storage := operands[slot]) is not None:
                reads[storage] = None
    writes: dict[int, None] = {}
    for key in spec.written_arguments(call):
        for slot in _slots(call, key):
            if (storage := operands[slot]) is not None:
                writes[storage] = None
    rng = None
    if spec.draws_random(call):
        seen = [s for v in (*call.outputs(), *call.inputs()) if (s := v.storage) is not None]
        rng = call.graph.storages[seen[0]].device if seen else "cpu"
    return CallEffects(tuple(reads), tuple(writes), rng, spec.host)


def _arguments(call: Call) -> Iterator[tuple[int | str, Arg]]:
    yield from enumerate(call.node.args)
    yield from call.node.kwargs


def _slots(call: Call, key: int | str) -> list[int]:
    """Input slots of the argument at a position or under a name; a list argument has several."""
    arg: Arg = None
    if isinstance(key, str):
        arg = call.node.kwarg(key)
    elif key < len(call.node.args):
        arg = call.node.args[key]
    return [ref.slot for ref in refs(arg)] if isinstance(arg, Ref | tuple) else []
