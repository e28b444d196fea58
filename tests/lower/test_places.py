"""Programs whose results lie at given places of a block."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from neaptide.errors import LoweringError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import Ref
from neaptide.ir.schedule import Schedule
from neaptide.lower.out_variants import out_variants
from neaptide.lower.places import Place, StepPlaces
from neaptide.lower.program import Watch
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.runtime.arena.tensors_by_shape import Arena
from neaptide.runtime.calls.executor import Executable
from support.torch_programs import Recorder, bits

MATRIX = Place(0, "float32", (4, 4), (4, 1))
ABOVE = Place(64, "float32", (4, 4), (4, 1))


def run(graph, inputs, places, schedule=None, **options):
    """Outputs, the program and the arena that it has run in."""
    schedule = schedule or Schedule.program_order(graph)
    program = lower(graph, schedule, registry(), places=places, **options)
    arena = Arena("cpu", 1024, 64)
    arena.block.fill_(0xFF)
    executable = Executable(program, name="placed", places=arena.tensors(program))
    watched = {} if program.watches else None
    outputs = executable.run(list(inputs), watched)
    return SimpleNamespace(outputs=outputs, program=program, arena=arena, watched=watched)


def product():
    """relu(x @ x), the product named and then used twice."""
    rec = Recorder()
    x = rec.input(torch.randn(4, 4), "x")
    h = rec.call("aten.mm.default", x, x)
    r = rec.call("aten.add.Tensor", rec.call("aten.relu.default", h), h)
    return rec, rec.finish([r]), r


@pytest.mark.parametrize(
    ("out", "line"),
    [
        (out_variants("aten.mm.default")[0], "mm = aten_mm_out(x, x, out=place_of_mm)"),
        (None, "mm = place_of_mm.copy_(aten_mm_default(x, x))"),
    ],
    ids=["written", "copied"],
)
def test_a_result_is_written_or_copied_to_its_place(out, line):
    rec, graph, r = product()
    found = run(graph, rec.fresh_inputs(), {0: StepPlaces((MATRIX,), out)})
    assert line in found.program.source
    assert found.program.places == {"place_of_mm": MATRIX}
    assert ("aten_mm_default" in found.program.names) == (out is None)
    assert torch.equal(found.arena.tensor(MATRIX), rec.data[graph.nodes[0].outputs[0]])
    assert bits(found.outputs[0]) == bits(rec.data[r])


def test_a_stand_in_has_the_bits_of_the_operation():
    special = [float("nan"), -0.0, 0.0, float("inf"), -float("inf"), -1.0, 2.0, 1e-42]
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        rec = Recorder()
        r = rec.call("aten.relu.default", rec.input(torch.tensor(special * 2, dtype=dtype), "x"))
        graph = rec.finish([r])
        place = Place(0, str(dtype).removeprefix("torch."), (16,), (1,))
        found = run(
            graph, rec.fresh_inputs(), {0: StepPlaces((place,), out_variants("aten.relu.default")[0])}
        )
        assert "aten_clamp_min_out(x, 0, out=place_of_relu)" in found.program.source
        assert bits(found.outputs[0]) == bits(rec.data[r])


def test_a_watch_behind_the_base_of_a_block():
    b = GraphBuilder("watched", registry())
    x = b.input("x", (4, 4))
    (h,) = b.node("aten.mm.default", x, x, outputs=["h: f32[4, 4]"])
    (row,) = b.node("aten.select.int", h, 0, 1, outputs=["row: f32[4] offset(4) @h"])
    (r,) = b.node("aten.relu_.default", h, outputs=["r: f32[4, 4] @h"])
    b.output(r)
    data = torch.randn(4, 4)
    places = {0: StepPlaces((ABOVE,), out_variants("aten.mm.default")[0])}
    found = run(b.finish(), [data], places, watches=[Watch("row", row, 1)])
    assert torch.equal(found.watched["row"], (data @ data)[1].relu())


def test_a_result_that_the_program_leaves_out_has_no_place_to_go():
    b = GraphBuilder("one of two", registry())
    x = b.input("x", (4, 4))
    (v,) = b.node("aten.topk.default", x, 2, outputs=["v: f32[4, 2]"], results=(Ref(0), None))
    b.output(v)
    with pytest.raises(LoweringError, match="leaves out"):
        run(b.finish(), [torch.randn(4, 4)], {0: StepPlaces((None,), out_variants("aten.topk.default")[0])})
