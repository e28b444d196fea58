"""A joint graph of AOTAutograd, or a forward graph, as a `Graph`: it runs once on fake tensors, and is recorded.

Sizes are numbers there: those of the first call, where a dim is dynamic. The order that is found holds for all sizes, since
each operation of FX keeps its own symbolic arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import fx

from neaptide.errors import CaptureError, NeaptideError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.dispatch.recorder import Recorder
from neaptide.frontends.programs.graph_reader import read_recording
from neaptide.frontends.recording.determinism import Listing
from neaptide.frontends.recording.recording import Line, Notes, Record, Recording
from neaptide.frontends.state.step_slots import EntryPattern, InputSlot, OutputSlot
from neaptide.frontends.state.traced import Returned, Trace
from neaptide.integrations.torch_compile._torch_private import as_in_eager
from neaptide.integrations.torch_compile.joint.border import cross_border
from neaptide.integrations.torch_compile.joint.fx_values import hint, outputs_of
from neaptide.integrations.torch_compile.joint.rows import rows
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import BORDER_OP

_LINE: Final = re.compile(r'File "(?P<file>[^"]+)", line (?P<number>\d+)')


@dataclass(frozen=True)
class Sides:
    """What a joint graph takes and gives, by side.

    Attributes:
        outputs: what the forward pass returns, in order; some are None or numbers.
        gradients: what the backward pass returns, in order.
        overwritten: primals that the caller overwrites between both passes, with outputs of the forward pass; and those
            that the forward pass overwrites itself, with what writes them.
        early: operations of the backward that follow from no tangent: they may run before the border.
    """

    primals: tuple[fx.Node, ...]
    tangents: tuple[fx.Node, ...]
    outputs: tuple[Any, ...]
    gradients: tuple[Any, ...]
    overwritten: Mapping[fx.Node, fx.Node]
    early: tuple[fx.Node, ...] = ()


@dataclass(frozen=True)
class JointGraph:
    """A graph of FX as a `Graph`.

    Attributes:
        border: id of the node between both passes; None where there is no backward.
        node_of: by id of a node, what runs in FX.
        same: by node of FX, the one with the same value that comes first, where that is another.
        node_with: by value of the `Graph`, the node of FX that comes first with it.
        unknown_ops: operations without a row.
    """

    module: fx.GraphModule
    sides: Sides
    graph: Graph
    border: int | None
    node_of: Mapping[int, fx.Node]
    same: Mapping[fx.Node, fx.Node]
    node_with: Mapping[int, fx.Node]
    unknown_ops: tuple[str, ...] = ()


def read_joint(module: fx.GraphModule, sides: Sides) -> JointGraph:
    """Read a graph of FX. O(nodes).

    Raises:
        CaptureError: it holds something that no program can carry.
    """
    with as_in_eager():  # AOTAutograd calls under a fake mode of its own
        return _Reader(module, sides).read()


class _Reader:
    def __init__(self, module: fx.GraphModule, sides: Sides) -> None:
        self.module, self.sides = module, sides
        self.notes = Notes()
        self.values: dict[fx.Node, Any] = {}
        self.slots: list[InputSlot] = []
        self.held: list[torch.Tensor] = []  # outputs as the caller holds them after the border
        self.recorder = Recorder(self.notes)
        self.mode = private.new_fake_mode()

    def read(self) -> JointGraph:
        nodes = list(self.module.graph.nodes)
        for node in nodes:
            if node.op in ("placeholder", "get_attr"):
                self._take(node)
        forward_ends = _last_needed(nodes, [*self.sides.outputs, *self.sides.overwritten.values()])
        before_border = {forward_ends, *self.sides.early}
        last = next(node for node in reversed(nodes) if node in before_border)
        has_border = bool(self.sides.tangents)
        with self.mode, self.recorder:
            for position, node in enumerate(nodes):
                if node.op in ("call_function", "call_method"):
                    self._call(node, position)
                if has_border and node is forward_ends:
                    self.notes.phase = "backward"
                if has_border and node is last:
                    self._cross(position)
            left = self._left()
            recording = self.recorder.finish(left)
        return self._joint(recording, len(left))

    # -- running it

    def _take(self, node: fx.Node) -> None:
        """Make the fake tensor, or number, of an input."""
        content = self._attribute(node) if node.op == "get_attr" else node.meta["val"]
        if not isinstance(content, torch.Tensor):
            self.values[node] = hint(content)
            return
        fake = self._fake(content)
        self.values[node] = fake
        if node not in self.sides.tangents:
            self.recorder.add_input(fake)
            self.slots.append(InputSlot("tensor", node.name, ("tensor", node.name)))

    def _attribute(self, node: fx.Node) -> Any:
        found: Any = self.module
        for name in str(node.target).split("."):
            found = getattr(found, name)
        return found

    def _fake(self, content: torch.Tensor) -> torch.Tensor:
        shape, strides = [hint(n) for n in content.shape], [hint(n) for n in content.stride()]
        return private.new_fake(self.mode, shape, strides, content.dtype, content.device)

    def _call(self, node: fx.Node, position: int) -> None:
        args: Any = fx.map_arg(node.args, self.values.__getitem__)
        kwargs: Any = fx.map_arg(node.kwargs, self.values.__getitem__)
        records = self.recorder.recording.records
        before = len(records)
        line = line_of(node)
        where = None if line is None else line.location
        # No operation is run by autograd here, so each has a number of its own.
        with self.notes.noted(module=node.name, sequences=[position]):
            try:
                if node.op == "call_method":
                    result = getattr(args[0], str(node.target))(*args[1:], **kwargs)
                else:
                    assert callable(node.target)
                    result = node.target(*args, **kwargs)
            except NeaptideError as error:
                raise CaptureError(
                    error.what, where=where, why=error.why, next_step=error.next_step
                ) from error
            except Exception as error:
                raise CaptureError(
                    f"the size or type of what {node.target} gives cannot be told before it runs",
                    where=where,
                    why=(str(error).strip().splitlines() or [type(error).__name__])[0],
                    next_step="keep it out of the compiled model: torch.compiler.disable",
                ) from error
        self.values[node] = result
        for record in records[before:]:
            record.line = line

    def _cross(self, position: int) -> None:
        sides = self.sides
        tensors = (self.values[node] for node in outputs_of(sides.outputs))
        outputs = _distinct(one for one in tensors if isinstance(one, torch.Tensor))
        copied = {id(self.values[node]) for node in sides.overwritten.values()}
        overwritten = [self.values[node] for node in sides.overwritten]
        tangents = [node for node in sides.tangents if isinstance(self.values[node], torch.Tensor)]
        with self.notes.noted(module="", sequences=[-1 - position]):
            came = cross_border(outputs, overwritten, [self.values[node] for node in tangents])
        self.held = [held for held, given in zip(came, outputs, strict=False) if id(given) not in copied]
        self.values.update(zip(tangents, came[len(outputs) :], strict=True))

    def _left(self) -> list[torch.Tensor]:
        """What lives when all has run: the caller has the outputs, and whoever calls the backward pass its operands."""
        sides = self.sides
        nodes = [*sides.tangents, *outputs_of(sides.gradients if sides.tangents else sides.outputs)]
        tensors = (self.values[node] for node in nodes)
        return [*self.held, *_distinct(one for one in tensors if isinstance(one, torch.Tensor))]

    # -- what was recorded

    def _joint(self, recording: Recording, left: int) -> JointGraph:
        trace = Trace(
            recording=recording,
            inputs=tuple(self.slots),
            outputs=tuple(OutputSlot("result", f"output[{k}]", (k,)) for k in range(left)),
            returned=Returned(None, {}),
            entry=EntryPattern(),
            exit=EntryPattern(),
            kept_gradients=frozenset(),
            listing=Listing((), (), ()),
        )
        read = read_recording(trace, rows(), name="joint graph")
        by_name = {node.name: node for node in self.module.graph.nodes}
        node_of: dict[int, fx.Node] = {}
        border = None
        for node in read.graph.nodes:
            if node.op == BORDER_OP:
                border = node.id
            else:
                node_of[node.id] = by_name[node.source.module]
        self._refuse_parts(node_of)
        same, first = self._same(read.value_of)
        return JointGraph(self.module, self.sides, read.graph, border, node_of, same, first, read.unknown_ops)

    def _refuse_parts(self, node_of: Mapping[int, fx.Node]) -> None:
        seen: set[fx.Node] = set()
        for node in node_of.values():
            if node in seen:
                line = line_of(node)
                raise CaptureError(
                    f"{node.target} runs as several operations",
                    where=None if line is None else line.location,
                    why="neaptide cannot order them one by one behind torch.compile",
                )
            seen.add(node)

    def _same(self, value_of: Mapping[Record, Any]) -> tuple[dict[fx.Node, fx.Node], dict[int, fx.Node]]:
        first: dict[int, fx.Node] = {}
        same: dict[fx.Node, fx.Node] = {}
        for node in self.module.graph.nodes:
            tensor = self.values.get(node)
            record = self.recorder.record_of(tensor) if isinstance(tensor, torch.Tensor) else None
            value = None if record is None else value_of.get(record)
            if isinstance(value, int) and first.setdefault(value, node) is not node:
                same[node] = first[value]
        return same, first


def _last_needed(nodes: Sequence[fx.Node], outputs: Iterable[Any]) -> fx.Node:
    """The last node that the forward pass needs, or the last input."""
    needed = set(outputs_of(outputs))
    stack = list(needed)
    while stack:
        for operand in stack.pop().all_input_nodes:
            if operand not in needed:
                needed.add(operand)
                stack.append(operand)
    return [node for node in nodes if node in needed or node.op == "placeholder"][-1]


def _distinct(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return list({id(tensor): tensor for tensor in tensors}.values())


def has_symbols(joint: JointGraph) -> bool:
    """Whether sizes of inputs vary: a program of their order serves all of them. O(inputs)."""
    values = [node.meta["val"] for node in (*joint.sides.primals, *joint.sides.tangents)]
    shapes = [value.shape for value in values if isinstance(value, torch.Tensor)]
    return any(hint(one) is not one for one in (*values, *(n for shape in shapes for n in shape)))


def line_of(node: fx.Node) -> Line | None:
    """The user's line that a node of FX comes from."""
    found = _LINE.findall(str(node.meta.get("stack_trace") or ""))
    return Line(found[-1][0], int(found[-1][1])) if found else None
