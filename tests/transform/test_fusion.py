"""Groups and their contraction: the same numbers as before, in fewer bytes, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neaptide.errors import RewriteError
from neaptide.ir.schedule import Schedule
from neaptide.kernels.fused import interpreted
from neaptide.lower import torch_calls
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.ops.fused import FUSED_OP, body_of, fused_body
from neaptide.runtime.calls.executor import Executable
from neaptide.transform.fusion.contract import contract
from neaptide.transform.fusion.find import find_groups
from neaptide.transform.fusion.group import Group, groups_of, rewrite_of
from support.drawn import examples
from support.torch_programs import SEED, Recorder, bits, random_program
from transform.fission_play import peak


@pytest.fixture
def uncompiled(monkeypatch):
    """Fused operations run operation by operation, so that every bit must be eager's."""
    monkeypatch.setattr(torch_calls, "fused_kernel", kernel)


def kernel(text):
    run = interpreted(fused_body(text))
    return lambda operands: run(*operands)


def assert_same_bits(recorder, changed):
    """A graph gives what was recorded, and leaves the inputs as they were left."""
    inputs = recorder.fresh_inputs()
    program = lower(changed, Schedule.program_order(changed), registry())
    torch.manual_seed(SEED)
    outputs = Executable(program, name="fused").run(list(inputs))
    assert [bits(o) for o in outputs] == [bits(recorder.data[v]) for v in recorder.builder.finish().outputs]
    assert [bits(t) for t in inputs] == [bits(recorder.data[v]) for v, _ in recorder.before]


@pytest.mark.usefixtures("uncompiled")
@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
@given(data=st.data())
def test_random_programs_keep_their_bits_when_all_or_some_groups_are_fused(data):
    recorder, graph = random_program(data.draw)
    groups = find_groups(graph, registry())
    some = [group for group in groups if data.draw(st.booleans())]
    for chosen in (groups, some):
        assert_same_bits(recorder, contract(graph, registry(), chosen).graph)


@pytest.mark.usefixtures("uncompiled")
@settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
@given(data=st.data())
def test_groups_by_chance_are_refused_or_keep_the_bits(data):
    recorder, graph = random_program(data.draw)
    numbers = st.integers(0, len(graph.nodes) - 1)
    nodes = tuple(sorted(data.draw(st.sets(numbers, min_size=1, max_size=4))))
    copies = tuple(sorted(data.draw(st.sets(numbers, max_size=2))))
    group = Group(nodes, data.draw(st.sampled_from(nodes)), copies)
    try:
        changed = contract(graph, registry(), [group]).graph
    except RewriteError:
        return
    assert_same_bits(recorder, changed)


def chain():
    """Two chains of the same operations, one after the other, around a product."""
    r = Recorder()
    x, weight = r.input(torch.randn(8, 8), "x"), r.input(torch.randn(8, 8), "weight")
    for _ in range(2):
        both = r.call("aten.tanh.default", x), r.call("aten.sigmoid.default", x)
        x = r.call("aten.mul.Tensor", *both)
        x = r.call("aten.mm.default", x, weight)
    return r.finish([x])


def test_equal_groups_have_equal_bodies_and_inner_values_take_no_bytes():
    graph = chain()
    made = contract(graph, registry(), find_groups(graph, registry())).graph
    fused = [node for node in made.nodes if node.op == FUSED_OP]
    assert len(fused) == 2
    assert fused[0].args[0] == fused[1].args[0]
    assert [node.op.split(".")[1] for node in body_of(fused[0]).nodes] == ["tanh", "sigmoid", "mul"]
    assert peak(made) < peak(graph)


def test_backward_is_handed_the_activation_and_not_what_was_made_of_it():
    r = Recorder()
    x, weight = r.input(torch.randn(8, 8), "x"), r.input(torch.randn(8, 8), "weight")
    wide = r.call("aten.mm.default", x, weight)
    tanh = r.call("aten.tanh.default", wide)
    gate = r.call("aten.mul.Tensor", tanh, r.call("aten.sigmoid.default", wide))
    back = r.call("aten.mm.default", gate, weight)
    slope = r.call("aten.mul.Tensor", r.call("aten.tanh_backward.default", back, tanh), gate)
    graph = r.finish([r.call("aten.mm.default", slope, back)])
    groups = find_groups(graph, registry())
    made = contract(graph, registry(), groups).graph
    backward = [node for node in made.nodes if node.op == FUSED_OP][-1]
    assert {made.values[v].name for v in backward.inputs} == {"mm", "mm_1"}
    assert sum(len(group.copies) for group in groups) == 3


@pytest.mark.usefixtures("uncompiled")
def test_a_value_that_is_used_for_its_shape_is_made_before():
    r = Recorder()
    x, weight = r.input(torch.randn(8, 8), "x"), r.input(torch.randn(8, 8), "weight")
    gate = r.call("aten.tanh.default", r.call("aten.sigmoid.default", x))
    mask = r.call("aten.zeros_like.default", gate)
    mask = r.call("aten.addmm.default", mask, x, weight)
    graph = r.finish([r.call("aten.mul.Tensor", gate, mask)])
    groups = find_groups(graph, registry())
    assert groups
    assert_same_bits(r, contract(graph, registry(), groups).graph)
    with pytest.raises(RewriteError, match="would have to run before"):
        contract(graph, registry(), [Group((0, 1, 4), 4)])


def test_a_number_leaves_a_tensor_without_dims_its_dtype():
    r = Recorder()
    step, rate = r.input(torch.tensor(0.3), "step"), r.input(0.1, "rate")
    graph = r.finish([r.call("aten.add.Tensor", r.call("aten.mul.Tensor", step, rate), 1.0)])
    made = contract(graph, registry(), find_groups(graph, registry())).graph
    (fused,) = made.nodes
    (result,) = interpreted(body_of(fused))(torch.tensor(0.3), torch.tensor(0.1, dtype=torch.float64))
    assert result.dtype == torch.float32


def test_groups_of_a_rewrite_are_those_that_it_was_made_of():
    groups = (Group((1, 2, 5), 2), Group((7,), 7, (1, 2)))
    assert groups_of(rewrite_of(groups)) == groups


BAD_SIZES = [(), (2,), (2, 0, 5, 0), (-1, 3), (0, 2), (1, 1, 1, -1)]


@pytest.mark.parametrize("sizes", BAD_SIZES)
def test_sizes_that_fit_no_groups_are_refused(sizes):
    with pytest.raises(RewriteError):
        groups_of(replace(rewrite_of([Group((1, 2), 1)]), settings=(("sizes", sizes),)))


REFUSED = {
    "a product": (Group((2, 3), 3), "neither element by element nor by rows"),
    "two at once": (Group((2, 4), 4), "would have to run before"),
    "too early": (Group((2, 4), 2), "would have to run before"),
    "not there": (Group((99,), 99), "is none of the"),
    "itself": (Group((0, 1), 1, (0,)), "copy in the group that it is in"),
    "later": (Group((0,), 0, (6,)), "what it needs is made later"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_groups_that_cannot_be_are_refused(name):
    group, why = REFUSED[name]
    with pytest.raises(RewriteError, match=why):
        contract(chain(), registry(), [group])
