"""A region in parts of a length that calls choose: one loop, right and exactly counted at every shape and length."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.analysis.profile_bytes import loop_workspace_bytes, memory_profile
from neaptide.analysis.shape_peaks import LoopBytes
from neaptide.cost.model import EstimatedCost
from neaptide.cost.of_shapes import CostOfShapes
from neaptide.cost.presets import get_device
from neaptide.errors import RewriteError
from neaptide.ir.axes import Along
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.ir.text.parser import parse_graph
from neaptide.ir.text.writer import print_graph
from neaptide.ir.verify import verify
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.planner.points.choices.choice import Choice
from neaptide.planner.points.choices.decide import script_rank
from neaptide.planner.points.parts import numbers_of_parts, part_lengths
from neaptide.planner.points.plan import Decisions, point_plan
from neaptide.runtime.calls.executor import Executable
from neaptide.runtime.measuring.meter import LiveBytesMeter
from neaptide.runtime.shapes.limit_by_shape import PointsWithin
from neaptide.runtime.shapes.point_executable import PointExecutable, PointProgram
from neaptide.symbolic.dims import Dim
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.rewrite import replay
from neaptide.transform.rules import RULES
from neaptide.transform.rules.fission import fission_by_shape
from support.drawn import examples
from support.symbolic_steps import symbolised
from support.torch_programs import Recorder

BATCH, TOKENS, WIDTH, WORDS = 7, 11, 4, 30
HIGH = 9


def recorded() -> Graph:
    """A head with many words over tokens, its loss as a sum, and gradients of what it reads: B x T tokens."""
    r = Recorder()
    call = r.call
    x = r.input(torch.randn(BATCH, TOKENS, WIDTH), "x")
    weight = r.input(torch.randn(WIDTH, WORDS), "weight")
    wide = call("aten.gelu.default", x)
    flat = call("aten.view.default", wide, [BATCH * TOKENS, WIDTH])
    logits = call("aten.mm.default", flat, weight)
    chances = call("aten._softmax.default", logits, -1, False)
    loss = call("aten.sum.default", chances)
    ones = call("aten.ones_like.default", chances)
    back = call("aten.mul.Tensor", ones, chances)
    to_weight = call("aten.mm.default", call("aten.t.default", flat), back)
    to_flat = call("aten.mm.default", back, call("aten.t.default", weight))
    to_x = call("aten.view.default", to_flat, [BATCH, TOKENS, WIDTH])
    to_x = call("aten.gelu_backward.default", to_x, x)
    return r.finish([loss, to_weight, to_x])


def whole() -> Graph:
    made = symbolised(recorded(), {BATCH: "B", TOKENS: "T"})
    return replace(made, dims=(Dim("B", 1, HIGH), Dim("T", 1, HIGH)))


WHOLE = whole()
B, T = SizeExpr.dim("B"), SizeExpr.dim("T")
FLAT = next(v.id for v in WHOLE.values if v.shape == (B * T, SizeExpr.const(WIDTH)))
BORDER = ("aten.gelu.default", "aten.gelu_backward.default", "aten.view.default")
OF_WEIGHT = WHOLE.consumers()[WHOLE.inputs[1]]
HEAD = [
    n.id for n in WHOLE.nodes if n.op not in BORDER and (n.id not in OF_WEIGHT or n.op == "aten.mm.default")
]
TOKENS_IN_PARTS = fission_by_shape(WHOLE, HEAD, length=B * T, step="rows", inputs={FLAT: Along(0)})
IN_PARTS = replay(WHOLE, registry(), [TOKENS_IN_PARTS], RULES).graph
(LOOP,) = (node for node in IN_PARTS.nodes if node.regions)

shapes = st.fixed_dictionaries({"B": st.integers(1, HIGH), "T": st.integers(1, HIGH)})


def at_any_length(draw, shape):
    return {**shape, "rows": draw(st.integers(1, shape["B"] * shape["T"]))}


lengths = st.composite(lambda draw: at_any_length(draw, draw(shapes)))()


def inputs_at(shape):
    torch.manual_seed(3)
    return [torch.randn(shape["B"], shape["T"], WIDTH), torch.randn(WIDTH, WORDS)]


def expected_at(shape):
    return Executable(lower(WHOLE, Schedule.program_order(WHOLE), registry()), name="whole").run(
        inputs_at(shape)
    )


def assert_close(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_the_number_of_parts_is_an_expression_of_the_shape_and_of_the_length_of_a_part():
    loop = LOOP.regions[0]
    assert loop.trip_count == (B * T - 1) // SizeExpr.dim("rows") + 1
    assert [(d.name, d.low, d.high) for d in IN_PARTS.dims][-1] == ("rows", 1, HIGH * HIGH)
    (part,) = part_lengths(IN_PARTS)
    assert (part.dim, part.length) == ("rows", B * T)


def test_text_and_json_keep_it():
    assert parse_graph(print_graph(IN_PARTS)) == IN_PARTS
    assert parse_graph(print_graph(IN_PARTS)) == IN_PARTS


@settings(deadline=None, max_examples=examples(40))
@given(lengths)
def test_bytes_and_seconds_at_a_shape_are_those_of_the_static_graph(sizes):
    static = with_sizes(IN_PARTS, sizes)
    verify(static)
    found = memory_profile(IN_PARTS, Schedule.program_order(IN_PARTS), binding=sizes)
    exact = memory_profile(static, Schedule.program_order(static))
    assert (found.bytes_at, found.peak_bytes) == (exact.bytes_at, exact.peak_bytes)
    nothing = LoopBytes(IN_PARTS, LOOP, lambda _graph, _node: SizeExpr.const(0))
    assert nothing.at(sizes) == loop_workspace_bytes(static, static.nodes[LOOP.id])
    cost = EstimatedCost(get_device("rtx3090"), registry())
    shaped, priced = CostOfShapes(IN_PARTS, cost), cost.under(sizes)
    expected = [priced.seconds(IN_PARTS, node) for node in IN_PARTS.nodes]
    assert shaped.seconds(sizes).tolist() == pytest.approx(expected, rel=1e-9, abs=0)
    assert shaped.loop_bytes[LOOP.id].at(sizes) == priced.workspace_bytes(IN_PARTS, LOOP)


@settings(deadline=None, max_examples=examples(20))
@given(lengths)
def test_parts_of_a_fixed_length_run_at_every_shape(sizes):
    fixed = with_sizes(IN_PARTS, {"rows": sizes["rows"]})
    inputs = inputs_at(sizes)
    program = Executable(lower(fixed, Schedule.program_order(fixed), registry()), name="parts")
    with LiveBytesMeter(inputs) as meter:
        found = program.run(list(inputs))
    assert_close(found, expected_at(sizes))
    assert meter.peak_bytes == memory_profile(fixed, Schedule.program_order(fixed), binding=sizes).peak_bytes


LARGEST = {"B": HIGH, "T": HIGH, "rows": HIGH * HIGH}
COST = EstimatedCost(get_device("rtx3090"), registry())


def points(budget_bytes):
    order = range(len(IN_PARTS.nodes))
    return point_plan(IN_PARTS, COST, order, LARGEST, least_budget_bytes=budget_bytes)


def peak_in(plan, count, shape):
    (part,) = part_lengths(IN_PARTS)
    return plan.shaped.at({**shape, "rows": part.in_parts(count, shape)}).peak_bytes


LIMIT = peak_in(points(0), 4, {"B": HIGH, "T": HIGH})


def test_each_call_runs_in_the_parts_that_its_shape_needs():
    plan = points(LIMIT)
    program = PointExecutable(PointProgram(PointsWithin(plan, LIMIT), "points"))
    trips = {}
    for shape in ({"B": 2, "T": 3}, {"B": HIGH, "T": HIGH}, {"B": 5, "T": HIGH}, {"B": 2, "T": 3}):
        inputs = inputs_at(shape)
        with LiveBytesMeter(inputs) as meter:
            found = program.run(list(inputs))
        assert_close(found, expected_at(shape))
        assert meter.peak_bytes <= program.totals.peak_bytes <= LIMIT
        trips[shape["B"] * shape["T"]] = LOOP.regions[0].trip_count.evaluate(program.bound(shape))
    assert trips[6] == 1
    assert trips[HIGH * HIGH] > 1


@settings(deadline=None, max_examples=examples(30))
@given(shapes)
def test_what_is_chosen_is_never_worse_than_one_part_and_fits_where_any_number_fits(shape):
    plan = points(LIMIT)
    decisions = Decisions(plan)
    _, chosen = Choice([plan]).chosen(shape, LIMIT)

    def rank(sizes):
        made = decisions.of(sizes, LIMIT)
        above, spent = script_rank(made.script, made.sizes, LIMIT, None)
        return above, spent + made.sizes.repeat_seconds[LOOP.id]

    ladder = numbers_of_parts(part_lengths(IN_PARTS), shape)
    assert rank(chosen) <= rank({**shape, **ladder[0]})
    fits = [rank({**shape, **some})[0] == 0 for some in ladder]
    assert (rank(chosen)[0] == 0) or not any(fits)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"length": "B*T*2"}, "does not lie in dim 0"),
        ({"length": "B*Q"}, "declares no dim Q"),
        ({"step": "T"}, "has a dim T already"),
        ({"step": 4}, "its setting step is no text"),
        ({"length": 7}, "its setting length is no text"),
    ],
)
def test_what_fits_no_axis_is_refused(changed, reason):
    now = dict(TOKENS_IN_PARTS.settings)
    settings_ = tuple({**now, **changed}.items())
    with pytest.raises(RewriteError, match=reason):
        replay(WHOLE, registry(), [replace(TOKENS_IN_PARTS, settings=settings_)], RULES)
