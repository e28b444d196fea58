"""One planned step for a range of shapes: eager's bits at each shape, within the limit, without planning again."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import neaptide
from neaptide.api.asking import placed
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.cost.model import EstimatedCost
from neaptide.errors import InfeasibleBudget, StepMismatch, UsageError
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.points.orders import orders_for_range
from neaptide.planner.points.shaped import ShapedProgram
from neaptide.policy.points.for_all_shapes import for_all_shapes
from neaptide.policy.prepared_step import prepare
from neaptide.runtime.arena.plan import ArenaOptions
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.verification import verify_eager, verify_planned
from neaptide.runtime.steps.planned_step import PlannedStep
from neaptide.zoo import factory as zoo_factory
from policy.points.paired_steps import PairedSteps
from support.step_checks import needs_varying_dims
from support.together import together

pytestmark = needs_varying_dims

DYNAMIC = {"x": {0: (2, 6), 1: (2, 12)}}
WIDTH = 8
WORK = 200


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.wide = nn.Linear(WIDTH, 4 * WIDTH)
        self.back = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, dim=-1)
        x = x + functional.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1)
        return x + self.back(functional.gelu(self.wide(x)))


def stepping(model, optimizer, loss_of):
    def step(x):
        loss = loss_of(model, x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, model


def mean_square(model, x):
    return model(x).square().sum() / (x.shape[0] * x.shape[1])


def make(dropout=0.0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(dropout), Block())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return stepping(model, optimizer, mean_square)


SHAPES = ((3, 5), (6, 12), (2, 2), (3, 5), (6, 3))


def batches(shapes=SHAPES):
    torch.manual_seed(1)
    return [torch.randn(*shape, WIDTH) for shape in shapes]


def pair_of(dropout, **options):
    limits = {"time_limit_s": None, "work_limit": WORK}
    return PairedSteps(lambda: make(dropout), **{"budget": "80%", "dynamic": DYNAMIC, **limits, **options})


@pytest.fixture(scope="module")
def pair():
    """A tight limit; the first steps of the optimizer, which are another program, are over."""
    found = pair_of(0.25)
    assert found.have_the_same_bits(batches([(3, 5)])) == 0
    return found


@pytest.fixture(scope="module")
def in_arena():
    """In an arena; the first steps of the optimizer are over."""
    found = pair_of(0.25, budget="90%", arena=True)
    assert found.fast.arena is None
    assert not found.fast.arena_on_the_way()
    assert found.have_the_same_bits(batches([(3, 5)])) == 0
    return found


@pytest.fixture(scope="module")
def prepared():
    """A step, and its capture for the range."""
    step, _ = make()
    (x,) = batches(((6, 12),))
    return step, prepare(step, (x,), dynamic=DYNAMIC)


@pytest.fixture(scope="module")
def variant(prepared):
    """What runs for it within most of the bytes."""
    return for_all_shapes(prepared[1], Ask(Budget("90%"), limits=Limits(work=WORK)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budget", "dropout", "strategy"), [("100%", 0.0, "default"), ("80%", 0.25, "by_shape")]
)
def test_other_budgets_and_strategies_have_the_bits_of_eager(budget, dropout, strategy):
    pair = pair_of(dropout, budget=budget, strategy=strategy)
    assert pair.have_the_same_bits(batches(SHAPES)) == 0
    assert pair.counts.planned == len(SHAPES)


def test_every_shape_has_the_bits_of_eager_and_only_large_ones_evict(pair):
    assert pair.have_the_same_bits(batches(SHAPES)) == 0
    evicted = {}
    for x in batches([(6, 12), (2, 2), (2, 3), (6, 12)]):
        assert pair.step(x) <= pair.fast.eviction.peak_bytes
        evicted[tuple(x.shape[:2])] = pair.fast.eviction.evicted
    assert evicted[6, 12] > 0
    assert evicted[2, 2] == 0


def test_an_arena_is_laid_out_for_each_shape_within_the_limit(in_arena):
    fast = in_arena.fast
    assert in_arena.have_the_same_bits(batches(SHAPES)) == 0
    limit = fast._variants[-1].planned.graphs[0].limit_bytes
    for x in batches([(6, 12), (2, 2), (6, 12)]):
        assert in_arena.step(x) <= fast.eviction.peak_bytes <= limit
        assert fast.arena.live_bytes <= fast.arena.arena_bytes <= fast.persistent()[-1].numel()
    assert fast.arena.written > 10
    way = fast.arena_on_the_way()
    assert [one.shape for one in (way[0], way[-1])] == [{"x_0": 2, "x_1": 2}, {"x_0": 6, "x_1": 12}]
    assert way[-1].arena_bytes == fast.arena.arena_bytes
    assert all(one.peak_with_workspace_bytes <= limit for one in way)


def test_a_block_for_the_whole_range_is_made_at_the_first_usual_step(prepared, variant):
    placed_in = placed(prepared[1], variant, ArenaOptions(whole_range=True))
    fast = PlannedStep(prepared[0], contestants.never_again, placed_in)
    data = batches([(2, 2), (2, 2), (5, 6), (6, 12)])
    fast(data[0])  # another program, if it is the first step of the optimizer
    fast(data[1])
    block = fast.persistent()[-1]
    assert block.numel() == max(one.arena_bytes for one in fast.arena_on_the_way())
    assert block.numel() > fast.arena.arena_bytes
    for x in data[2:]:
        fast(x)
        assert fast.persistent()[-1] is block


def test_a_shape_outside_of_the_range_gets_an_arena_of_its_own(in_arena):
    assert in_arena.have_the_same_bits(batches([(3, 5), (1, 5), (6, 12), (1, 5)])) == 1


def test_gradients_can_be_watched(pair):
    for x in batches([(6, 12), (6, 12)]):
        before = [p.detach().clone() for p in pair.model.parameters()]
        torch.manual_seed(2)
        _, seen = pair.fast.run_watched(x)
        torch.manual_seed(2)
        pair.eager(x)
        expected = copy.deepcopy(pair.model)
        for own, old in zip(expected.parameters(), before, strict=True):
            own.data.copy_(old)
        torch.manual_seed(2)
        mean_square(expected, x).backward()
        found = {name.partition(".grad@")[0]: gradient for name, gradient in seen.items()}
        assert len(found) == len(before)
        for name, parameter in expected.named_parameters():
            (gradient,) = (g for label, g in found.items() if label.endswith(name))
            assert torch.equal(gradient, parameter.grad)


def test_other_shapes_are_planned_by_themselves(pair):
    assert pair.have_the_same_bits(batches([(3, 5), (1, 5), (4, 4), (1, 5)])) == 1


def test_other_shapes_can_be_an_error_that_names_the_range(prepared, variant):
    fast = PlannedStep(prepared[0], contestants.never_again, variant, on_mismatch="error")
    fast(batches()[0])
    with pytest.raises(StepMismatch, match="the size x_0 is 9, was 2 to 6"):
        fast(torch.zeros(9, 4, WIDTH))


def test_a_limit_that_the_largest_shape_cannot_keep_is_told_at_once(prepared):
    with pytest.raises(InfeasibleBudget, match="largest shapes"):
        for_all_shapes(prepared[1], Ask(Budget("5KiB"), limits=Limits(work=WORK)))


@together(
    "options",
    [
        {"atomic": True},
        {"arena": True, "strategy": "by_shape"},
        {"arena": True, "numerics": "close"},
        {"arena": True, "budget": Budget("80%", host="1MiB")},
        {"eviction": "dtr"},
        {"numerics": "close", "strategy": "by_shape"},
        {"strategy": "program_order"},
        {"budget": Budget(latency="+10%")},
        {"budget": "min"},
    ],
)
def test_what_no_program_for_all_shapes_can_have_is_refused(options):
    with pytest.raises(UsageError, match="exclude each other"):
        neaptide.compile_step(make()[0], **{"budget": "80%", "dynamic": DYNAMIC, **options})


def linear(loss_of):
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, WIDTH)
    return stepping(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_of)


def test_a_range_needs_an_end():
    step, _ = linear(lambda model, x: model(x).sum())
    fast = neaptide.compile_step(step, budget="80%", dynamic={"x": {0: (2, None)}})
    with pytest.raises(UsageError, match="has no end"):
        fast(torch.zeros(3, WIDTH))


def test_a_step_that_fixes_its_sizes_is_planned_as_ever():
    step, model = linear(lambda model, x: sum(model(x[place]).sum() for place in range(x.shape[0])))
    beside = copy.deepcopy(model)
    fast = neaptide.compile_step(step, budget="100%", dynamic={"x": {0: (2, 6)}})
    fast(torch.ones(3, WIDTH))
    assert fast.eviction is None
    assert not torch.equal(model.weight, beside.weight)


def test_a_step_for_all_shapes_is_verified_like_any_other(variant):
    def factory():
        step, _ = make()
        (x,) = batches(((6, 12),))
        return step, x

    outcome, _ = verify_planned(factory, 0, contestants.rebind(variant), verify_eager(factory, 0))
    assert outcome.bitwise_equal, (outcome.max_abs_diff, outcome.worst)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["gpt2@tiny,seq=64", "llama@tiny", "bert@tiny,seq=64"])
def test_language_models_with_any_batch_and_length(spec):
    def made():
        step, like = contestants.build(zoo_factory(spec), 0)
        likes.append(like)
        return step, nn.Module()

    likes: list[dict[str, torch.Tensor]] = []
    pair = PairedSteps(made, budget="70%", dynamic={"batch": {0: (1, 64), 1: (2, 64)}})
    for rows, tokens in [(3, 9), (3, 9), (64, 64), (5, 20), (2, 33)]:
        batch = {
            name: torch.randint(0, 10, (rows, tokens), dtype=old.dtype) for name, old in likes[0].items()
        }
        peak = pair.step(batch)
        assert peak <= pair.fast.eviction.peak_bytes or pair.counts.planned == 1
    assert pair.counts.replans == 0


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_every_order_for_the_range_has_the_bits_of_eager(dropout):
    step, _ = make(dropout)
    said = []
    prepared = prepare(
        step, (batches(((6, 12),))[0],), run_operations=False, dynamic=DYNAMIC, progress=said.append
    )
    graph = prepared.captured.steady.graph
    cost, largest = EstimatedCost(prepared.device, registry()), {dim.name: dim.high for dim in graph.dims}
    shaped = ShapedProgram(graph, cost, range(len(graph.nodes)), largest)
    _, best = orders_for_range(shaped, Limits())
    for_all_shapes(prepared, Ask(Budget("100%")))
    assert any(best.reason in line for line in said)
    assert pair_of(dropout, budget="100%").have_the_same_bits(batches(SHAPES)) == 0
