"""Recorded training steps, run with chosen results on top of their operands: the same bits everywhere."""

from __future__ import annotations

import pytest
import torch

from neaptide.ir.nodes import Named, Ref
from neaptide.ir.schedule import Schedule
from neaptide.layout.in_place import choose_in_place
from neaptide.lower.out_variants import resolve_operation
from neaptide.ops import registry
from neaptide.ops.structural import CONSTANT_OP, host_function
from neaptide.zoo.spec import factory
from neaptide_peers.layouts.ladder import memory_ladder
from overwriting import bits, overwrite
from recorded_steps import record_step
from torch_programs import SEED

LISTED = sorted(row.name for row in registry() if row.in_place)

SPECS = [
    "mlp",
    "gpt2",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("resnet50", "unet", "llama")),
]


@pytest.fixture(scope="module", params=SPECS)
def recorded(request):
    if request.param in {"gpt2", "llama"}:
        pytest.importorskip("transformers")
    return record_step(factory(request.param))


def play(graph, inputs, choices=()):
    """All outputs of a program and its inputs as it leaves them; chosen results are written on top of operands."""
    over = {choice.step.target: choice for choice in choices}
    values = dict(zip(graph.inputs, inputs, strict=True))
    torch.manual_seed(SEED)
    for node in graph.nodes:
        args = [real(graph, node, arg, values) for arg in node.args]
        kwargs = {key: real(graph, node, arg, values) for key, arg in node.kwargs}
        if node.id in over:
            operand = over[node.id].operand
            position = next(
                p
                for p in registry().require(node.op).in_place
                if isinstance(node.args[p], Ref) and node.inputs[node.args[p].slot] == operand
            )
            values[node.outputs[0]] = overwrite(node.op, args, kwargs, position)
            continue
        if node.op == CONSTANT_OP:
            numbers, shape, dtype, _ = args
            got = torch.tensor(numbers, dtype=dtype).reshape(shape)
        else:
            function = host_function(node.op) if node.op.startswith("host.") else resolve_operation(node.op)
            got = function(*args, **kwargs)
        bind(node.results, got, node, values)
    return [values[v] for v in (*graph.outputs, *graph.inputs)]


def real(graph, node, arg, values):
    if isinstance(arg, Ref):
        return values[node.inputs[arg.slot]]
    if isinstance(arg, Named):
        return torch.device(arg.name) if arg.family == "device" else getattr(torch, arg.name)
    return [real(graph, node, item, values) for item in arg] if isinstance(arg, tuple) else arg


def bind(structure, got, node, values):
    if structure is None:
        items = [got] if len(node.outputs) == 1 else got
        values.update(zip(node.outputs, items, strict=False))
        return
    for place, item in zip(structure, got, strict=True):
        if isinstance(place, Ref):
            values[node.outputs[place.slot]] = item
        elif place is not None:
            bind(place, item, node, values)


def test_step_with_results_on_top_of_operands_has_the_same_bits(recorded):
    recorder, graph = recorded
    choices = choose_in_place(graph, Schedule.program_order(graph), registry())
    assert choices
    expected = play(graph, recorder.fresh_inputs())
    got = play(graph, recorder.fresh_inputs(), choices)
    for one, other in zip(expected, got, strict=True):
        if isinstance(one, torch.Tensor):
            assert torch.equal(bits(one), bits(other))
        else:
            assert one == other


def test_every_elementwise_operation_of_the_step_is_decided(recorded):
    """Each functional elementwise operation of the step is claimed, or is a copy or a random one."""
    _, graph = recorded
    for node in graph.nodes:
        row = registry().find(node.op)
        fresh = row is not None and graph.created_storages(node) and len(node.outputs) == 1
        if fresh and row.traits == {"elementwise"} and node.effects.is_pure:
            assert node.op in LISTED or node.op == "aten.rsub.Scalar"


def test_ladder_goes_down(recorded):
    _, graph = recorded
    rows = memory_ladder(graph, Schedule.program_order(graph), registry())
    assert [row.name for row in rows] == ["no reuse", "in-place", "liveness counters", "static plan"]
    assert [row.nbytes for row in rows] == sorted((row.nbytes for row in rows), reverse=True)
    assert rows[0].nbytes > rows[1].nbytes > rows[2].nbytes
