"""A machine that plays a node sequence with contents instead of numbers: what is read, drawn, written and said.

It knows the graph, what effects its nodes have and which stand-ins replay them, and nothing of planners, evaluators or
legality. The content of a storage is a hash of how it came about, so that two plays agree in it only if the same
operations saw the same contents.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.nodes import refs


@dataclass(eq=False)
class Block:
    """Bytes somewhere: an instance of a storage."""

    storage: int
    content: int


@dataclass
class Played:
    """What a play leaves behind.

    Attributes:
        seen: by execution of a node, (node, what it read).
        outputs: contents of what is handed back.
        owned: contents of the caller's storages at the end.
        drawn: numbers drawn from each random stream.
        said: by process group and for the host, in order, what was sent there.
        peak_bytes, peak_with_workspace_bytes: highest bytes, the caller's included.
    """

    seen: list[tuple[int, int]] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    owned: dict[int, int] = field(default_factory=dict)
    drawn: dict[str, int] = field(default_factory=dict)
    said: dict[str, list[int]] = field(default_factory=dict)
    peak_bytes: int = 0
    peak_with_workspace_bytes: int = 0


def play(graph, sequence, registry, workspace=None):
    """Play a sequence; a name is deleted after its last use, a block with its last name.

    Raises KeyError for a name that is not bound, AssertionError for two instances of one storage in one operation.
    """
    return _Machine(graph, registry, workspace or {}).run(list(sequence))


class _Machine:
    def __init__(self, graph, registry, workspace):
        self.graph = graph
        self.registry = registry
        self.workspace = workspace
        self.played = Played()
        self.blocks = {s: Block(s, hash(("owned", s))) for s in graph.input_storages()}
        self.persistent = {id(block) for block in self.blocks.values()}
        self.names = {}
        for value in graph.inputs:
            storage = graph.values[value].storage
            self.names[value] = hash(("scalar", value)) if storage is None else self.blocks[storage]
        self.noted = {}
        self.ran = set()
        self.size = [storage.nbytes.constant_value() for storage in graph.storages]
        self.persistent_bytes = sum(self.size[s] for s in self.blocks)

    def run(self, sequence):
        last = self._last_uses(sequence)
        for position, number in enumerate(sequence):
            node = self.graph.nodes[number]
            made = self._execute(node)
            before = dict(self.names)
            self.names.update(made)
            # Operands and results are there together.
            self._count([*before.values(), *made.values()], self.workspace.get(number, 0))
            for value in [*made, *node.inputs]:
                if last.get((value, position)):
                    self.names.pop(value, None)
        self.played.outputs = [self._content(self.names[value]) for value in self.graph.outputs]
        self.played.owned = {s: block.content for s, block in self.blocks.items()}
        return self.played

    def _last_uses(self, sequence):
        """(value, position) after which its name is of no use."""
        ended = {}
        live = set(self.graph.outputs) | set(self.graph.inputs)
        for position in range(len(sequence) - 1, -1, -1):
            node = self.graph.nodes[sequence[position]]
            used = set(needed_inputs(self.graph, node))
            for value in {*node.outputs, *used}:
                if value not in live:
                    ended[value, position] = True
            live -= set(node.outputs)
            live |= used
        return ended

    def _execute(self, node):
        again = node.id in self.ran
        self.ran.add(node.id)
        spec = self.registry.find(node.op)
        stand_in = spec.replay if spec is not None else None
        writes = {access.storage for access in node.effects.writes}
        reads = {access.storage for access in node.effects.reads} | writes
        if stand_in is not None:
            slots = {r.slot for p in stand_in.positions if p < len(node.args) for r in refs(node.args[p])}
            matter = [node.inputs[slot] for slot in sorted(slots)]
        else:
            matter = node.inputs
        found = {}
        for value in needed_inputs(self.graph, node):
            block = self.names[value]
            if isinstance(block, Block):
                assert found.setdefault(block.storage, block) is block, "two instances of one storage"
        seen = tuple(
            self._content(self.names[value])
            for value in matter
            if self.graph.values[value].storage is None or self.graph.values[value].storage in reads
        )
        content = hash((node.id, seen, self._draw(node, again)))
        listeners = [node.effects.collective, "the host" if node.effects.host else None]
        for listener in filter(None, listeners):
            self.played.said.setdefault(listener, []).append(content)
        self.played.seen.append((node.id, content))
        if not (again and stand_in is not None):
            for storage in sorted(writes):
                found[storage].content = hash(("written", content, storage, found[storage].content))
        made = {}
        created = {s: Block(s, hash((content, s))) for s in self.graph.created_storages(node)}
        for value in node.outputs:
            storage = self.graph.values[value].storage
            made[value] = hash((content, value)) if storage is None else (created | found)[storage]
        return made

    def _draw(self, node, again):
        """The place in its random stream that a node draws from; a repetition has the place of the first time."""
        stream = node.effects.rng
        if stream is None:
            return None
        if not again:
            self.noted[node.id] = self.played.drawn.get(stream, 0)
            self.played.drawn[stream] = self.noted[node.id] + 1
        return self.noted[node.id]

    def _count(self, held, scratch):
        blocks = {id(b): b for b in held if isinstance(b, Block) and id(b) not in self.persistent}
        here = self.persistent_bytes + sum(self.size[b.storage] for b in blocks.values())
        self.played.peak_bytes = max(self.played.peak_bytes, here)
        self.played.peak_with_workspace_bytes = max(self.played.peak_with_workspace_bytes, here + scratch)

    def _content(self, held):
        return held.content if isinstance(held, Block) else held
