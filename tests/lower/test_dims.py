"""Programs that take the dims of their graph: one program, any shape."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.errors import LoweringError, SymbolicError, UsageError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ir.nodes import Named
from neaptide.ir.schedule import Offload, Schedule
from neaptide.lower.dims import DimReader
from neaptide.lower.places import Place, StepPlaces
from neaptide.lower.program import Watch
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.runtime.calls.executor import Executable
from neaptide.symbolic.parsing import parse_size_expr
from neaptide.symbolic.size_expr import SizeExpr
from support.hand_graphs import looped
from support.symbolic_steps import attention, for_all_shapes
from support.together import together
from support.torch_programs import check_run, random_order, with_recomputation

lengths = st.tuples(st.integers(1, 5), st.integers(1, 6))


def test_the_program_takes_the_dims_that_its_inputs_tell():
    graph = for_all_shapes()
    program = lower(graph, Schedule.program_order(graph), registry())
    assert dict(program.dims) == {"B": "B", "T": "T"}
    assert program.source.startswith("def program(args, *, B, T):\n")
    assert "[B * T, 6]" in program.source


@settings(deadline=None)
@given(lengths, st.data())
def test_one_program_runs_all_shapes_with_the_bits_and_bytes_of_each(shape, data):
    recorder, static = attention(*shape)
    graph = for_all_shapes()
    order = with_recomputation(data.draw, graph, random_order(data.draw, graph))
    schedule = Schedule.from_nodes(graph, order)
    executable = Executable(lower(graph, schedule, registry()), name="dynamic")
    bound = with_sizes(graph, dict(zip("BT", shape, strict=True)))
    assert [s.nbytes for s in bound.storages] == [s.nbytes for s in static.storages]
    check_run(recorder, bound, schedule, executable)


def test_watched_values_of_any_shape_are_copied():
    graph = for_all_shapes()
    weights = graph.outputs[-1]
    program = lower(graph, Schedule.program_order(graph), registry(), watches=[Watch("w", weights, 0)])
    assert "def program(args, watched, *, B, T):" in program.source
    copies: dict[str, torch.Tensor] = {}
    recorder, _ = attention(3, 4)
    outputs = Executable(program, name="watched").run(recorder.fresh_inputs(), copies)
    assert torch.equal(copies["w"], outputs[-1])


# -- reading dims


def reader(*shapes):
    b = GraphBuilder("inputs")
    values = [b.input(f"x{n}", shape) for n, shape in enumerate(shapes)]
    b.output(*values)
    return DimReader(b.finish())


def sized(*texts):
    return tuple(parse_size_expr(str(text)) for text in texts)


def test_dims_follow_from_plain_extents_first_and_then_from_linear_ones():
    read = reader(sized("B*T + 2*C"), sized("T", 4), sized("3*B + T"))
    assert read.dims == ("T", "B", "C")
    args = [torch.empty(5 * 2 + 2 * 9), torch.empty(2, 4), torch.empty(3 * 5 + 2)]
    assert read.read(args) == {"T": 2, "B": 5, "C": 9}


@together(
    ("inputs", "shapes", "message"),
    [
        (
            [("B", 4), ("B", 2)],
            [(2, 4), (3, 2)],
            r"x1 has the shape \[3, 2\], and the program takes \[B, 2\]",
        ),
        ([("B", 4), ("B", 2)], [(2, 4), (3, 2)], "axis 0 is B long, where B = 2"),
        ([("B", 4), ("B", 2)], [(2, 5), (2, 2)], "axis 1 is 4 long"),
        ([("B", 4), ("B", 2)], [(2,), (2, 2)], "another number of axes"),
        ([("3*B",)], [(7,)], r"axis 0 is 3\*B long, where B = 2"),
    ],
)
def test_arguments_whose_shapes_do_not_belong_together_are_refused(inputs, shapes, message):
    read = reader(*(sized(*extents) for extents in inputs))
    with pytest.raises(UsageError, match=message):
        read.read([torch.empty(shape) for shape in shapes])


def test_an_input_that_nothing_uses_need_not_be_there():
    b = GraphBuilder("inputs", registry())
    b.input("unused", sized("B"))
    x = b.input("x", sized("B"))
    (y,) = b.node("aten.relu.default", x, outputs=["y: f32[{B}]"])
    b.output(y)
    assert DimReader(b.finish()).read([None, torch.empty(3)]) == {"B": 3}


def test_a_size_outside_its_range_is_refused():
    read = DimReader(for_all_shapes(highest=8))
    recorder, _ = attention(3, 9)
    with pytest.raises(SymbolicError, match="T = 9 is outside its range"):
        read.read(recorder.fresh_inputs())


# -- what a program with dims has


def test_a_loop_over_parts_of_any_number_of_rows():
    rows = SizeExpr.dim("rows")
    body = GraphBuilder("body", registry())
    part, w = body.input("part", (rows, 4)), body.input("w", (4, 4))
    (h,) = body.node("aten.mm.default", part, w, outputs=["h: f32[{rows}, 4]"])
    (y,) = body.node("aten.view.default", h, [rows * 4], outputs=["y: f32[{4*rows}] @h"])
    (z,) = body.node("aten.view.default", y, [rows, 4], outputs=["z: f32[{rows}, 4] @h"])
    body.output(z)
    n = SizeExpr.dim("N")
    graph = looped(body, (n + 2) // 3, 3, ["out: f32[{N}, 4]"], x=(n, 4), w=(4, 4))
    executable = Executable(lower(graph, Schedule.program_order(graph), registry()), name="loop")
    for length in (1, 3, 8):
        x, w = torch.randint(-3, 4, (length, 4)).float(), torch.randint(-3, 4, (4, 4)).float()
        assert torch.equal(executable.run([x, w])[0], x @ w)


def constants(*numbers):
    b = GraphBuilder("constants", registry())
    n = SizeExpr.dim("N")
    x = b.input("x", (n,))
    (c,) = b.node(
        "neaptide.constant",
        list(numbers),
        [n],
        Named("dtype", "float32"),
        Named("device", "cpu"),
        outputs=["c: f32[{N}] strides(0) bytes(4)"],
    )
    (y,) = b.node("aten.add.Tensor", x, c, outputs=["y: f32[{N}]"])
    b.output(y)
    return b.finish()


def test_a_constant_as_long_as_an_argument():
    graph = constants(2.5)
    executable = Executable(lower(graph, Schedule.program_order(graph), registry()), name="constant")
    assert executable.run([torch.ones(3)])[0].tolist() == [3.5] * 3


def test_what_has_one_size_is_refused_beside_dims():
    graph = for_all_shapes()
    order = Schedule.program_order(graph)
    place = StepPlaces((Place(0, "float32", (2,), (1,)),))
    with pytest.raises(LoweringError, match="an arena has one size, but this program takes B, T"):
        lower(graph, order, registry(), places={0: place})
    offloads = order.with_offloads([Offload(graph.created_storages(graph.nodes[0])[0], 0, 0, 0, 1, 1)])
    with pytest.raises(LoweringError, match="an offload on the host has one size"):
        lower(graph, offloads, registry())
    with pytest.raises(LoweringError, match="a constant of 2 numbers has a shape that changes"):
        lower(constants(1.0, 2.0), Schedule.program_order(constants(1.0, 2.0)), registry())
