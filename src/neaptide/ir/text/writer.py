"""The text form of a graph: one line per node, diff-friendly, and an exact round trip.

```
graph "mlp" {
  input %x: f32[4, 8] kind(input)
  input %w: f32[8, 8] kind(parameter)
  %h: f32[4, 8] = aten.mm.default(%x, %w) reads(@x, @w)  # model.py:12 mlp.fc forward "h = x @ w"
  %v: f32[8, 4] strides(1, 8) @h = aten.t.default(%h)
  %r: f32[4, 8] @h.1 = aten.relu_.default(%h) reads(@h) writes(@h.1)
  output(%r)
}
```

A storage is called by the first value that sees it: `@h`, and `@h.1` for its version 1. A value without `@` sees a
storage of its own, with `bytes(...)`, `device(...)`, `kind(...)` and `name(...)` where these are not what the value
says. A number in braces, `{4*B}`, is a size expression, also when it is constant; a bare one is a plain number.
What is known of the names in such expressions stands in front: `dim B from 1 to 64`, `relation {S0} = {12*S1}`.
The grammar is written out in `ir.text.parser`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Loop, Named, Node, Ref, SliceMap, Source, refs
from neaptide.ir.values import DTYPE_BYTES, DTYPE_WORDS, Kind, Storage, Value, contiguous_strides
from neaptide.symbolic.dims import Dim
from neaptide.symbolic.size_expr import SizeExpr

_WORD = re.compile(r"[A-Za-z0-9_.:+/\\~-]+")
_NAMED = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*(:[A-Za-z0-9_.]+)*")


def print_graph(graph: Graph) -> str:
    """The text of a verified graph, ending in a newline; `parse_graph` gives back an equal graph. O(size)."""
    return "\n".join(_graph_lines(graph, Labels(graph))) + "\n"


def print_node(graph: Graph, node: Node) -> str:
    """One node as text, without what is inside its regions. Works on graphs that break the rules, too."""
    return _node_line(graph, node, Labels(graph), set())


class Labels:
    """What storages are called: the name of the first value that sees each, in order of appearance."""

    def __init__(self, graph: Graph) -> None:
        self.value_order = list(graph.inputs)
        for node in graph.nodes:
            self.value_order.extend(node.outputs)
        self.of: dict[int, str] = {}
        for number in self.value_order:
            value = graph.values[number] if 0 <= number < len(graph.values) else None
            if value is not None and value.storage is not None:
                self.of.setdefault(value.storage, value.name)

    def access(self, storage: int, version: int) -> str:
        """`@h` or `@h.1`; `@?7` for a storage that no value sees."""
        label = self.of.get(storage, f"?{storage}")
        return f"@{label}.{version}" if version else f"@{label}"


def _graph_lines(graph: Graph, labels: Labels) -> list[str]:
    lines = [f"graph {_quote(graph.name)} {{"]
    lines += [f"  dim {dim.name} {_range(dim)}" for dim in graph.dims]
    lines += [f"  relation {_extent(r.left)} = {_extent(r.right)}" for r in graph.relations]
    seen: set[int] = set()
    lines += [f"  input {_declare(graph, value, labels, seen)}" for value in graph.inputs]
    for node in graph.nodes:
        lines.append("  " + _node_line(graph, node, labels, seen))
        for region in node.regions:
            lines.append(f"    {_loop_header(region)} {{")
            lines += ["      " + line for line in _graph_lines(region.body, Labels(region.body))]
            lines.append("    }")
    lines.append(f"  output({_join(_value(graph, value) for value in graph.outputs)})")
    lines += [f"  segment {_quote(s.name)} {s.start} {s.end}" for s in graph.segments]
    if labels.value_order != list(range(len(graph.values))):
        lines.append(f"  values({_join('%' + value.name for value in graph.values)})")
    if list(labels.of) != list(range(len(graph.storages))):
        lines.append(f"  storages({_join(labels.access(storage.id, 0) for storage in graph.storages)})")
    lines.append("}")
    return lines


def _node_line(graph: Graph, node: Node, labels: Labels, seen: set[int]) -> str:
    outputs = _join(_declare(graph, value, labels, seen) for value in node.outputs)
    in_order = is_canonical(node)
    operands = [_value(graph, v) if in_order else f"${slot}" for slot, v in enumerate(node.inputs)]
    arguments = [_argument(arg, operands) for arg in node.args]
    arguments += [f"{key}={_argument(arg, operands)}" for key, arg in node.kwargs]
    parts = [f"{node.op}({_join(arguments)})"]
    if not in_order:
        parts.append(f"inputs({_join(_value(graph, v) for v in node.inputs)})")
    effects = node.effects
    parts += [
        f"{verb}({_join(labels.access(a.storage, a.version) for a in accesses)})"
        for verb, accesses in (("reads", effects.reads), ("writes", effects.writes))
        if accesses
    ]
    if effects.rng is not None:
        parts.append(f"rng({_name(effects.rng)})")
    if effects.collective is not None:
        parts.append(f"collective({_name(effects.collective)})")
    if effects.host:
        parts.append("host")
    if node.results is not None:
        parts.append(f"returns({_argument(node.results, [f'${k}' for k in range(len(node.outputs))])})")
    if comment := _source(node.source):
        parts.append(f" # {comment}")
    return (f"{outputs} = " if outputs else "") + " ".join(parts)


def is_canonical(node: Node) -> bool:
    """Whether the inputs stand once each in the order in which the arguments first refer to them."""
    slots = dict.fromkeys(ref.slot for arg in (*node.args, *(a for _, a in node.kwargs)) for ref in refs(arg))
    return list(slots) == list(range(len(node.inputs))) and len(set(node.inputs)) == len(node.inputs)


def _value(graph: Graph, number: int) -> str:
    return f"%{graph.values[number].name}" if 0 <= number < len(graph.values) else f"%?{number}"


def _declare(graph: Graph, number: int, labels: Labels, seen: set[int]) -> str:
    if not 0 <= number < len(graph.values):
        return f"%?{number}"
    value = graph.values[number]
    dtype = DTYPE_WORDS.get(value.dtype, value.dtype)
    if value.storage is None:
        return f"%{value.name}: host {dtype}"
    parts = [f"%{value.name}: {dtype}[{_join(map(_extent, value.shape))}]"]
    if value.strides != contiguous_strides(value.shape):
        parts.append(f"strides({_join(map(_extent, value.strides))})")
    if value.offset != SizeExpr.const(0):
        parts.append(f"offset({_extent(value.offset)})")
    own = labels.of.get(value.storage) == value.name and value.storage not in seen
    if not own or value.version:
        parts.append(labels.access(value.storage, value.version))
    if own and 0 <= value.storage < len(graph.storages):
        seen.add(value.storage)
        parts += _storage(graph.storages[value.storage], value)
    return " ".join(parts)


def _storage(storage: Storage, value: Value) -> list[str]:
    parts = []
    if value.dtype not in DTYPE_BYTES or storage.nbytes != value.nbytes:
        parts.append(f"bytes({_extent(storage.nbytes)})")
    if storage.device != "cpu":
        parts.append(f"device({_name(storage.device)})")
    if storage.kind is not Kind.TEMPORARY:
        parts.append(f"kind({storage.kind})")
    if storage.name != value.name:
        parts.append(f"name({_quote(storage.name)})")
    return parts


def _range(dim: Dim) -> str:
    return f"from {dim.low}" if dim.high is None else f"from {dim.low} to {dim.high}"


def _loop_header(loop: Loop) -> str:
    slices = _join(map(_slice, loop.slices))
    merges = _join(f"{m.output} {m.how} {m.axis}" for m in loop.merges)
    return f"loop {_extent(loop.trip_count)} slices({slices}) merges({merges})"


def _slice(part: SliceMap) -> str:
    halo = f" halo {part.before} {part.after}" if part.halo else ""
    return f"{part.input} axis {part.axis} step {_extent(part.step)}{halo}"


def _extent(size: SizeExpr) -> str:
    return str(size) if size.is_constant else f"{{{size}}}"


def _argument(arg: Arg, operands: list[str]) -> str:
    match arg:
        case Ref(slot):
            return operands[slot] if 0 <= slot < len(operands) else f"$?{slot}"
        case Named(family, name):
            return f"{family}:{_name(name)}"
        case SizeExpr():
            return f"{{{arg}}}"
        case None:
            return "none"
        case bool():
            return "true" if arg else "false"
        case float():
            return repr(arg) if math.isfinite(arg) else f'float("{arg}")'
        case int():
            return str(arg)
        case str():
            return _quote(arg)
        case _:
            return f"[{_join(_argument(item, operands) for item in arg)}]"


def _source(source: Source) -> str:
    location = f"{source.file}:{source.line}" if source.file or source.line else ""
    fields = [location, source.module, source.phase]
    words = ["-" if not field else _word(field) for field in fields]
    if source.code:
        words.append(_quote(source.code))
    while words and words[-1] == "-":
        words.pop()
    return " ".join(words)


def _word(text: str) -> str:
    return text if _WORD.fullmatch(text) and text != "-" else _quote(text)


def _name(text: str) -> str:
    return text if _NAMED.fullmatch(text) else _quote(text)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=True)


def _join(parts: Iterable[str]) -> str:
    return ", ".join(parts)
