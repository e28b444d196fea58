"""Parser of the text form: a tokenizer and a recursive descent over this grammar.

```
graph    = "graph" STRING "{" line* "}"
line     = "input" declare | [declare {"," declare} "="] op | "output" "(" values ")"
         | "dim" NAME "from" INT ["to" INT] | "relation" size "=" size
         | "segment" STRING INT INT | "values" "(" values ")" | "storages" "(" accesses ")"
declare  = "%"NAME ":" ("host" DTYPE | DTYPE "[" sizes "]" {"strides" "(" sizes ")" | "offset" "(" size ")"
           | access | "bytes" "(" size ")" | "device" "(" word ")" | "kind" "(" WORD ")" | "name" "(" STRING ")"})
op       = WORD "(" [argument {"," argument}] ")" {effect} ["#" location module phase code] {loop}
effect   = "inputs" "(" values ")" | "reads" "(" accesses ")" | "writes" "(" accesses ")"
         | "rng" "(" word ")" | "collective" "(" word ")" | "host" | "returns" "(" item ")"
argument = [NAME "="] item
item     = "%"NAME | "$"INT | FAMILY ":" name | "{" expression "}" | INT | FLOAT | "float" "(" STRING ")"
         | STRING | "none" | "true" | "false" | "[" items "]"
loop     = "loop" size "slices" "(" {slice} ")" "merges" "(" {INT WORD INT} ")" "{" graph "}"
slice    = INT "axis" INT "step" size ["halo" INT INT]
access   = "@"NAME ["." INT]
size     = INT | "{" expression "}"
```
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from neaptide.errors import VerifyError
from neaptide.ir.graph import Graph, Segment
from neaptide.ir.nodes import Access, Arg, Effects, Loop, MergeMap, Named, Node, Ref, SliceMap
from neaptide.ir.text.cursor import Cursor, Token
from neaptide.ir.values import DTYPE_WORDS, Kind, Storage, Value, contiguous_strides
from neaptide.ir.verify import verify
from neaptide.symbolic.dims import Dim, Relation
from neaptide.symbolic.size_expr import SizeExpr

_DTYPES = {word: dtype for dtype, word in DTYPE_WORDS.items()}
_CONSTANTS: dict[str, Arg] = {"none": None, "true": True, "false": False}
_SPECIAL_FLOATS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_ZERO = SizeExpr.const(0)


@dataclass(frozen=True, slots=True)
class Declaration:
    """A value as declared; `access` is None for one that sees a storage of its own."""

    name: str
    dtype: str
    host: bool = False
    shape: tuple[SizeExpr, ...] = ()
    strides: tuple[SizeExpr, ...] = ()
    offset: SizeExpr = _ZERO
    access: tuple[str, int] | None = None
    nbytes: SizeExpr | None = None
    device: str = "cpu"
    kind: Kind = Kind.TEMPORARY
    storage_name: str | None = None


@dataclass(slots=True)
class _Scope:
    """What the lines of one graph have declared so far."""

    values: list[Value] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    value_ids: dict[str, int] = field(default_factory=dict)
    storage_ids: dict[str, int] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: tuple[int, ...] = ()
    segments: list[Segment] = field(default_factory=list)
    dims: list[Dim] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)
    value_order: list[int] | None = None
    storage_order: list[int] | None = None


def parse_graph(text: str) -> Graph:
    """The graph that `text` spells, verified.

    Raises:
        VerifyError: malformed text, with line and column; or a graph that breaks a rule.
    """
    parser = _Parser(text)
    try:
        graph = parser.graph()
    except RecursionError as error:
        raise VerifyError("malformed graph text: it is nested too deeply") from error
    parser.finish("graph")
    verify(graph)
    return graph


def parse_declaration(text: str) -> Declaration:
    """One value declaration, such as `y: f32[4, 8] @x`; the `%` in front may be left out."""
    parser = _Parser(text if text.lstrip().startswith("%") else "%" + text.lstrip())
    result = parser.declaration()
    parser.finish("declaration")
    return result


class _Parser(Cursor):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.scope = _Scope()

    def value_use(self) -> int:
        token = self.take("value")
        found = self.scope.value_ids.get(token.text[1:])
        if found is None:
            raise self.error(f"unknown value {token.text}", token)
        return found

    def label(self) -> tuple[str, int]:
        name, _, version = self.take("storage").text[1:].partition(".")
        return name, int(version or 0)

    def access(self) -> Access:
        token = self.peek()
        name, version = self.label()
        return Access(self.storage_id(name, token), version)

    def storage_id(self, name: str, token: Token) -> int:
        found = self.scope.storage_ids.get(name)
        if found is None:
            raise self.error(f"unknown storage @{name}", token)
        return found

    # -- graphs

    def graph(self) -> Graph:
        outer, self.scope = self.scope, _Scope()
        self.take("word", "graph")
        name = self.string()
        self.take("sign", "{")
        while not self.accept("}"):
            self.line()
        scope, self.scope = self.scope, outer
        graph = Graph(
            tuple(scope.nodes),
            tuple(scope.values),
            tuple(scope.storages),
            tuple(scope.inputs),
            scope.outputs,
            tuple(scope.segments),
            name,
            tuple(scope.dims),
            tuple(scope.relations),
        )
        if scope.value_order is None and scope.storage_order is None:
            return graph
        return renumbered(graph, scope.value_order, scope.storage_order)

    def line(self) -> None:
        token = self.peek()
        scope = self.scope
        if token.kind == "value":
            declarations = [(token, self.declaration())]
            while self.accept(","):
                declarations.append((self.peek(), self.declaration()))
            self.take("sign", "=")
            self.node(declarations)
            return
        following = self.following()
        if token.text == "input" and following.kind == "value":
            self.take()
            scope.inputs.append(self.declare(self.declaration(), following))
        elif token.text == "segment" and following.kind == "string":
            self.take()
            scope.segments.append(Segment(self.string(), self.integer(), self.integer()))
        elif token.text == "dim" and following.kind == "word":
            self.take()
            scope.dims.append(self.dim())
        elif token.text == "relation" and following.kind in {"size", "int"}:
            self.take()
            left = self.size()
            self.take("sign", "=")
            scope.relations.append(Relation(left, self.size()))
        elif token.text == "output":
            self.take()
            scope.outputs = tuple(self.parenthesised(self.value_use))
        elif token.text == "values":
            self.take()
            scope.value_order = self.order(self.value_use, len(scope.values))
        elif token.text == "storages":
            self.take()
            scope.storage_order = self.order(lambda: self.access().storage, len(scope.storages))
        elif token.kind == "word":
            self.node([])
        else:
            raise self.error(f"unexpected {token.text or 'the end'!r}")

    def dim(self) -> Dim:
        name = self.take("word").text
        self.take("word", "from")
        low = self.integer()
        return Dim(name, low, self.integer() if self.accept("to") else None)

    def order(self, item: Callable[[], int], size: int) -> list[int]:
        token = self.peek()
        listed = self.parenthesised(item)
        if sorted(listed) != list(range(size)):
            raise self.error("the list must name everything once", token)
        return listed

    def declaration(self) -> Declaration:
        name = self.take("value").text[1:]
        self.take("sign", ":")
        host = self.accept("host")
        token = self.take("word")
        dtype = _DTYPES.get(token.text)
        if dtype is None:
            raise self.error(f"unknown dtype {token.text!r}; one of {', '.join(_DTYPES)}", token)
        if host:
            return Declaration(name, dtype, host=True)
        self.take("sign", "[")
        shape = tuple(self.listed(self.size, "]"))
        strides: tuple[SizeExpr, ...] | None = None
        offset, nbytes, device, kind = _ZERO, None, "cpu", Kind.TEMPORARY
        access: tuple[str, int] | None = None
        storage_name: str | None = None
        while True:
            if self.peek().kind == "storage":
                access = self.label()
            elif self.accept("strides"):
                strides = tuple(self.parenthesised(self.size))
            elif self.accept("offset"):
                offset = self.one(self.size)
            elif self.accept("bytes"):
                nbytes = self.one(self.size)
            elif self.accept("device"):
                device = self.one(self.word)
            elif self.accept("kind"):
                kind = self.one(self.kind)
            elif self.accept("name"):
                storage_name = self.one(self.string)
            else:
                break
        if strides is None:
            strides = contiguous_strides(shape)
        return Declaration(
            name, dtype, False, shape, strides, offset, access, nbytes, device, kind, storage_name
        )

    def kind(self) -> Kind:
        token = self.take("word")
        if token.text not in set(Kind):
            raise self.error(f"unknown kind {token.text!r}; one of {', '.join(Kind)}", token)
        return Kind(token.text)

    def declare(self, made: Declaration, token: Token) -> int:
        scope = self.scope
        if made.name in scope.value_ids:
            raise self.error(f"second value with the name %{made.name}", token)
        number = len(scope.values)
        storage, version = None, 0
        if not made.host:
            label, version = made.access or (made.name, 0)
            if label == made.name:
                storage = len(scope.storages)
                dense = Value(number, made.name, made.dtype, made.shape).nbytes
                storage_name = made.name if made.storage_name is None else made.storage_name
                scope.storages.append(
                    Storage(storage, made.nbytes or dense, made.device, made.kind, storage_name)
                )
                scope.storage_ids[label] = storage
            else:
                storage = self.storage_id(label, token)
        scope.value_ids[made.name] = number
        scope.values.append(
            Value(number, made.name, made.dtype, made.shape, made.strides, made.offset, storage, version)
        )
        return number

    # -- nodes

    def node(self, declarations: list[tuple[Token, Declaration]]) -> None:
        token = self.take("word")
        self.take("sign", "(")
        inputs: list[int] = []
        args: list[Arg] = []
        kwargs: list[tuple[str, Arg]] = []
        while not self.accept(")"):
            if args or kwargs:
                self.take("sign", ",")
            if self.peek().kind == "word" and self.following().text == "=":
                key = self.take().text
                self.take()
                kwargs.append((key, self.item(inputs)))
            elif kwargs:
                raise self.error("a positional argument after a keyword argument")
            else:
                args.append(self.item(inputs))
        reads: list[Access] = []
        writes: list[Access] = []
        rng: str | None = None
        collective: str | None = None
        results: Arg = None
        host = False
        while True:
            if self.peek().kind == "word" and self.following().text == "(" and self.peek().text in _EFFECTS:
                verb = self.take().text
                if verb == "inputs":
                    inputs = self.parenthesised(self.value_use)
                elif verb == "reads":
                    reads = self.parenthesised(self.access)
                elif verb == "writes":
                    writes = self.parenthesised(self.access)
                elif verb == "returns":
                    results = self.one(lambda: self.item([]))
                elif verb == "rng":
                    rng = self.one(self.word)
                else:
                    collective = self.one(self.word)
            elif self.peek().kind == "word" and self.peek().text == "host":
                self.take()
                host = True
            else:
                break
        source = self.source()
        outputs = tuple(self.declare(made, place) for place, made in declarations)
        regions = []
        while self.peek().text == "loop" and self.following().kind in {"int", "size"}:
            regions.append(self.loop())
        effects = Effects(tuple(reads), tuple(writes), rng, collective, host)
        self.scope.nodes.append(
            Node(
                len(self.scope.nodes),
                token.text,
                tuple(inputs),
                outputs,
                tuple(args),
                tuple(kwargs),
                effects,
                source,
                tuple(regions),
                results,
            )
        )

    def item(self, inputs: list[int]) -> Arg:
        token = self.peek()
        match token.kind:
            case "value":
                value = self.value_use()
                if value not in inputs:
                    inputs.append(value)
                return Ref(inputs.index(value))
            case "slot":
                return Ref(int(self.take().text[1:]))
            case "size":
                return self.size()
            case "int":
                return self.integer()
            case "float":
                return float(self.take().text)
            case "string":
                return self.string()
            case "word":
                return self.named_item()
            case _:
                self.take("sign", "[")
                return tuple(self.listed(lambda: self.item(inputs), "]"))

    def named_item(self) -> Arg:
        token = self.take("word")
        if token.text in _CONSTANTS:
            return _CONSTANTS[token.text]
        if token.text == "float" and self.peek().text == "(":
            special = self.one(self.string)
            if special not in _SPECIAL_FLOATS:
                raise self.error(f"unknown number {special!r}", token)
            return _SPECIAL_FLOATS[special]
        family, colon, name = token.text.partition(":")
        if colon and name:
            return Named(family, name)
        if self.accept(":"):
            return Named(family, self.string())
        raise self.error(f"unexpected {token.text!r} as an argument", token)

    def loop(self) -> Loop:
        self.take("word", "loop")
        trip_count = self.size()
        self.take("word", "slices")
        slices = self.parenthesised(self.slice_map)
        self.take("word", "merges")
        merges = self.parenthesised(self.merge_map)
        self.take("sign", "{")
        body = self.graph()
        self.take("sign", "}")
        return Loop(body, trip_count, tuple(slices), tuple(merges))

    def slice_map(self) -> SliceMap:
        number = self.integer()
        self.take("word", "axis")
        axis = self.integer()
        self.take("word", "step")
        step = self.size()
        halo = (self.integer(), self.integer()) if self.accept("halo") else (0, 0)
        return SliceMap(number, axis, step, *halo)

    def merge_map(self) -> MergeMap:
        return MergeMap(self.integer(), self.take("word").text, self.integer())


_EFFECTS = frozenset({"inputs", "reads", "writes", "rng", "collective", "returns"})


def renumbered(
    graph: Graph, value_order: Sequence[int] | None = None, storage_order: Sequence[int] | None = None
) -> Graph:
    """The graph whose value `i` is the old value `value_order[i]`, and likewise for storages. O(size)."""
    values_by_new = list(range(len(graph.values))) if value_order is None else list(value_order)
    storages_by_new = list(range(len(graph.storages))) if storage_order is None else list(storage_order)
    value_id = {old: new for new, old in enumerate(values_by_new)}
    storage_id = {old: new for new, old in enumerate(storages_by_new)}

    def moved(accesses: tuple[Access, ...]) -> tuple[Access, ...]:
        return tuple(Access(storage_id[a.storage], a.version) for a in accesses)

    def moved_node(node: Node) -> Node:
        return replace(
            node,
            inputs=tuple(value_id[v] for v in node.inputs),
            outputs=tuple(value_id[v] for v in node.outputs),
            effects=replace(node.effects, reads=moved(node.effects.reads), writes=moved(node.effects.writes)),
        )

    values = []
    for new, old in enumerate(values_by_new):
        value = graph.values[old]
        storage = None if value.storage is None else storage_id[value.storage]
        values.append(replace(value, id=new, storage=storage))
    return replace(
        graph,
        nodes=tuple(moved_node(node) for node in graph.nodes),
        values=tuple(values),
        storages=tuple(replace(graph.storages[old], id=new) for new, old in enumerate(storages_by_new)),
        inputs=tuple(value_id[v] for v in graph.inputs),
        outputs=tuple(value_id[v] for v in graph.outputs),
    )
