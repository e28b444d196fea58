"""Questions about what was recorded: what is needed, what they write, what their storages really hold, where it is from."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from neaptide.frontends.recording.recording import Record, written_arguments
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Source, refs
from neaptide.ir.registry import Call, OpRegistry
from neaptide.symbolic.size_expr import SizeExpr


def live_records(records: Sequence[Record], has_effects: Callable[[Record], bool]) -> set[Record]:
    """Records that an output or an effect needs."""
    live: set[Record] = set()
    stack = [r for r in records if r.kind == "output" or (r.kind == "call" and has_effects(r))]
    while stack:
        record = stack.pop()
        if record not in live:
            live.add(record)
            stack.extend(record.operands())
    return live


def true_storage_sizes(graph: Graph, registry: OpRegistry) -> Graph:
    """Sizes that fake tensors get wrong, from the op table (a mean loss that keeps its unreduced bytes)."""
    corrected: dict[int, SizeExpr] = {}
    for node in graph.nodes:
        spec = registry.find(node.op)
        if spec is None or spec.storage_bytes is None:
            continue
        for position, nbytes in spec.storage_bytes(Call(graph, node)).items():
            storage = graph.values[node.outputs[position]].storage
            if storage is not None:
                corrected[storage] = nbytes
    if not corrected:
        return graph
    storages = tuple(replace(s, nbytes=corrected.get(s.id, s.nbytes)) for s in graph.storages)
    return replace(graph, storages=storages)


def schema_writes(target: Any, call: Call) -> tuple[int, ...]:
    """Storages that an op without a row says it overwrites."""
    written: dict[int, None] = {}
    for position, argument in written_arguments(target):
        for ref in refs(call.arg(position, argument.name)):
            storage = call.graph.values[call.node.inputs[ref.slot]].storage
            if storage is not None:
                written[storage] = None
    return tuple(written)


def is_check(target: torch._ops.OpOverload) -> bool:
    """Whether an op only looks at a tensor, and raises where its numbers are wrong."""
    schema = target._schema  # noqa: SLF001
    return not schema.returns and any(isinstance(a.type, torch.TensorType) for a in schema.arguments)


def foreach_length(record: Record) -> int:
    """Length of the lists of a call that does one thing for each tensor of them, where all have the same; else 0."""
    if re.match(r"aten\._(foreach|fused)_", str(record.target)) is None:
        return 0
    lengths = {
        len(a)
        for a in (*record.args, *record.kwargs.values())
        if isinstance(a, tuple) and a and all(isinstance(i, Record) for i in a)
    }
    return lengths.pop() if len(lengths) == 1 else 0


_NO_SEQUENCE = (1 << 64) - 1  # what autograd numbers nodes that belong to no forward op


class SourceMap:
    """Reads the notes on the records of a trace; backward calls borrow line and module of their forward op.

    The join is on autograd's sequence number: the forward op and the backward nodes of its gradient carry the
    same one.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self._forward: dict[int, Record] = {}
        for record in records:
            is_forward = record.phase == "forward" or record.is_recomputed
            if record.kind != "call" or not is_forward or record.sequence is None:
                continue
            known = self._forward.get(record.sequence)
            if record.line is not None and (known is None or record.module):
                self._forward[record.sequence] = record

    def of(self, record: Record) -> Source:
        """Line, module and phase of a record."""
        phase, number = record.phase, record.sequence
        is_backward = phase == "backward" and not record.is_recomputed
        if is_backward and number is not None and number != _NO_SEQUENCE:
            record = self._forward.get(number, record)
        line = record.line
        if line is None:
            return Source(module=record.module, phase=phase)
        return Source(line.file, line.number, line.code, record.module, phase)
