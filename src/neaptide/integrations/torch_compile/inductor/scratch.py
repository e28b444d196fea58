"""What operations of ATen inside a compiled program allocate beside their results, measured as those of any graph are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.cost.measured import MeasuredCost
from neaptide.frontends import _torch_private as private
from neaptide.frontends.dispatch.recorder import Recorder
from neaptide.frontends.programs.graph_reader import read_recording
from neaptide.frontends.recording.determinism import Listing
from neaptide.frontends.recording.recording import Notes
from neaptide.frontends.state.step_slots import EntryPattern, InputSlot, OutputSlot
from neaptide.frontends.state.traced import Returned, Trace
from neaptide.integrations.torch_compile.joint.rows import rows
from neaptide.ir.graph import Graph
from neaptide.planner.pricing import Pricing


@dataclass(frozen=True, slots=True)
class Shape:
    """A tensor without its bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True)
class Call:
    """An operation with its operands; equal ones take the same scratch bytes."""

    operation: Any
    leaves: tuple[Any, ...]
    spec: Any

    @staticmethod
    def of(operation: Any, args: Any, kwargs: Mapping[str, Any]) -> Call | None:
        """A call; None for one that allocates nothing but its results. One with `out` is taken for the one without."""
        if operation.is_view or operation is torch.ops.aten.empty_strided.default:
            return None
        if "out" in kwargs:
            name = operation._overloadname.removesuffix("out").removesuffix("_")  # noqa: SLF001 - no public name
            found = getattr(operation.overloadpacket, name or "default", None)
            if found is None:
                return None
            operation, kwargs = found, {key: item for key, item in kwargs.items() if key != "out"}
        leaves, spec = pytree.tree_flatten((args, dict(kwargs)))
        return Call(operation, tuple(map(_shape, leaves)), spec)


def _shape(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return Shape(tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device)


def scratch_bytes(calls: Iterable[Call]) -> dict[Call, int]:
    """Most bytes that each call allocates beside its results. Each is run once on this machine, where it can be."""
    distinct = list(dict.fromkeys(calls))
    if not distinct:
        return {}
    graph = _graph(distinct)
    cost = MeasuredCost(rows())
    cost.prepare(graph)
    found = dict.fromkeys(distinct, 0)
    prices = Pricing(cost, rows()).prices(graph)
    for node in graph.nodes:
        call = distinct[int(node.source.module)]
        found[call] = max(found[call], prices.own_workspace.get(node.id, 0))
    return found


def _graph(calls: list[Call]) -> Graph:
    """A graph in which each call is run on inputs of its own."""
    mode, notes = private.new_fake_mode(), Notes()
    recorder = Recorder(notes)
    given: list[list[Any]] = []
    slots: list[InputSlot] = []
    for call in calls:
        leaves = [_fake(mode, leaf) for leaf in call.leaves]
        given.append(leaves)
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                name = f"operand{len(slots)}"
                recorder.add_input(leaf)
                slots.append(InputSlot("tensor", name, ("tensor", name)))
    results: list[torch.Tensor] = []  # nothing runs whose results nobody has
    with mode, recorder:
        for number, (call, leaves) in enumerate(zip(calls, given, strict=True)):
            args, kwargs = pytree.tree_unflatten(leaves, call.spec)
            with notes.noted(module=str(number), sequences=[number]):
                made = call.operation(*args, **kwargs)
            results += [one for one in pytree.tree_leaves(made) if isinstance(one, torch.Tensor)]
        recording = recorder.finish(results)
    trace = Trace(
        recording=recording,
        inputs=tuple(slots),
        outputs=tuple(OutputSlot("result", f"output[{k}]", (k,)) for k in range(len(results))),
        returned=Returned(None, {}),
        entry=EntryPattern(),
        exit=EntryPattern(),
        kept_gradients=frozenset(),
        listing=Listing((), (), ()),
    )
    return read_recording(trace, rows(), name="kernels").graph


def _fake(mode: Any, leaf: Any) -> Any:
    if not isinstance(leaf, Shape):
        return leaf
    return private.new_fake(mode, leaf.shape, leaf.strides, leaf.dtype, leaf.device)
