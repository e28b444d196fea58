"""Loops placed by hand on captured steps, for tests: axes told by a length that no other dim has."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest
import torch

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import RewriteError
from neaptide.frontends.programs.captured import CapturedProgram, CapturedStep
from neaptide.ir.axes import Along
from neaptide.ir.edits.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.ir.values import Kind
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.runtime.calls.executor import Executable
from neaptide.runtime.measuring.meter import LiveBytesMeter
from neaptide.transform.rewrite import Rewrite, Rule
from neaptide.transform.rules.fission import fission

Wanted = Callable[[Graph, int], bool]


def along(graph: Graph, length: int, inner: int = 1) -> dict[int, Along]:
    """Where an axis lies in the values of a graph: dims of its length, or `inner` times as long, which no others are."""
    axes = {}
    for value in graph.values:
        dims = [
            dim
            for dim, extent in enumerate(value.shape)
            if extent.constant_value() in (length, length * inner)
        ]
        if dims:
            (dim,) = dims
            axes[value.id] = Along(dim)
    return axes


def touching(graph: Graph, values: Collection[int]) -> list[int]:
    """Nodes in front of the optimizer that have one of some values among their operands or results."""
    return [
        node.id
        for node in graph.nodes
        if node.source.phase != "optimizer" and not set(values).isdisjoint((*node.inputs, *node.outputs))
    ]


def split(graph: Graph, region: Collection[int], length: int, parts: int, inner: int = 1) -> Rewrite:
    """The rewrite that runs a region in parts."""
    axes = along(graph, length, inner)
    made = {value for number in region for value in graph.nodes[number].outputs}
    used = {value for number in region for value in graph.nodes[number].inputs}
    inputs = {value: axes[value] for value in sorted(used - made) if value in axes}
    return fission(graph, region, length=length, parts=parts, inputs=inputs)


def random_inputs(graph: Graph, indices_below: int = 5, seed: int = 0) -> list[Any]:
    """An operand for each input of a graph, scaled so that sums stay near one."""
    generator = torch.Generator().manual_seed(seed)
    found: list[Any] = []
    for number in graph.inputs:
        value = graph.values[number]
        shape = [extent.constant_value() for extent in value.shape]
        if value.storage is None:
            found.append(0.1)
        elif value.dtype == "int64":
            found.append(torch.randint(indices_below, shape, generator=generator))
        else:
            data = torch.randn(shape, generator=generator) * 0.3
            found.append(data.abs() if graph.storages[value.storage].kind is Kind.OPTIMIZER_STATE else data)
    return found


def run_measured(graph: Graph, inputs: list[Any], schedule: Schedule | None = None) -> list[torch.Tensor]:
    """Results and operands after a run of copies of the operands; the peak must be the predicted one."""
    order = Schedule.program_order(graph) if schedule is None else schedule
    copies = [item.clone() if isinstance(item, torch.Tensor) else item for item in inputs]
    tensors = [item for item in copies if isinstance(item, torch.Tensor)]
    with LiveBytesMeter(tensors) as meter:
        outputs = Executable(lower(graph, order, registry()), name="split").run(list(copies))
    assert meter.peak_bytes == memory_profile(graph, order).peak_with_workspace_bytes
    return [*outputs, *tensors]


def assert_close(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """Equal within what another order of sums may change."""
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def edited_step(captured: CapturedStep, edit: Callable[[Graph], Edited]) -> CapturedStep:
    """A captured step whose programs run changed graphs, gradients observed as before."""

    def edited(program: CapturedProgram) -> CapturedProgram:
        made = edit(program.graph)
        now = {old: new for new, old in enumerate(made.value_of) if old >= 0}
        seen = tuple(replace(o, value=now[o.value]) for o in program.observations)
        return replace(program, graph=made.graph, observations=seen)

    return replace(
        captured, steady=edited(captured.steady), first=tuple(edited(program) for program in captured.first)
    )


def assert_same_numbers(changed: Graph, graph: Graph, inputs: list[Any] | None = None) -> None:
    """Both give the same up to rounding, in the bytes that are predicted; of random inputs, if none are given."""
    inputs = random_inputs(graph) if inputs is None else inputs
    assert_close(run_measured(changed, inputs), run_measured(graph, inputs))


def peak(graph: Graph) -> int:
    """Bytes of program order at its peak, with those in the bodies of loops."""
    return memory_profile(graph, Schedule.program_order(graph)).peak_with_workspace_bytes


def refused(rule: Rule, graph: Graph, node: int) -> str:
    """Why a rule leaves a node alone: it does not find it, and refuses it where it is named."""
    assert all(node not in found.nodes for found in rule.find(graph, registry()))
    with pytest.raises(RewriteError) as told:
        rule.apply(graph, registry(), Rewrite(rule.name, (node,), (), rule.keeps_bits))
    return told.value.what


def last_of(graph: Graph, op: str) -> int:
    """The last node of an operation."""
    return max(node.id for node in graph.nodes if node.op == op)
