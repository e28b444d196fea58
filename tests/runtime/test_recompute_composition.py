"""Recomputation together with everything else a training step does: planned, run, and equal to eager to the bit."""

from __future__ import annotations

import functools
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import neaptide
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.ops import declared
from neaptide.outcome import Limits
from neaptide.planner.graphs.graph_search import DEFAULT_STRATEGY
from neaptide.policy.points.arenas import in_arenas
from neaptide.policy.prepared_step import PreparedStep, prepare
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.verification import verify_eager, verify_planned
from neaptide.runtime.steps.planned_graph import StepPlan

WIDTH = 16


class Block(nn.Module):
    def __init__(self, probability: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(probability)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.drop(functional.gelu(self.up(self.norm(x)))))


def updated(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> torch.Tensor:
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def stack(probability: float = 0.0, blocks: int = 3) -> nn.Sequential:
    return nn.Sequential(*(Block(probability) for _ in range(blocks)))


def batch() -> torch.Tensor:
    return torch.randn(256, WIDTH)


@functools.cache
def _prepared(factory, measured: bool, _declared: frozenset[str]) -> PreparedStep:
    step, x = contestants.build(factory, 0)
    return prepare(step, (x,), run_operations=measured)


def planned(
    factory, share: str = "45%", *, measured: bool = False, **options
) -> tuple[PreparedStep, StepPlan]:
    prepared = _prepared(factory, measured, frozenset(declared._rows))
    strategy = DEFAULT_STRATEGY if options.get("atomic") else "greedy_recompute"
    limits = Limits(work=500)
    return prepared, prepared.plan(Ask(Budget(share), strategy, limits, **options))


def assert_same_bits(factory, variant) -> None:
    outcome, _ = verify_planned(factory, 0, contestants.rebind(variant), verify_eager(factory, 0))
    assert outcome.bitwise_equal, (outcome.max_abs_diff, outcome.worst)


def repeated(found: StepPlan, index: int = 0) -> Counter[str]:
    """Operations that run more than once, with how often they run again."""
    graph = found.variant.captured.programs[index].graph
    runs = Counter(step.target for step in found.variant.graphs[index].schedule.node_steps())
    return Counter({op: n for op, n in _sums(graph, runs).items() if n})


def _sums(graph, runs: Counter[int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for node, count in runs.items():
        found[graph.nodes[node].op] += count - 1
    return found


def dropped():
    model = stack(0.3, blocks=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return lambda x: updated(optimizer, model(x).square().mean()), batch()


# -- random numbers


@pytest.mark.parametrize("atomic", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_dropout_is_recomputed_with_the_same_mask(atomic):
    _, found = planned(dropped, "35%", atomic=atomic)
    assert repeated(found)["aten.bernoulli_.float"], "of a usual step"
    assert repeated(found, 1)["aten.bernoulli_.float"], "of the first step"
    kept = found.plan.programs[0].predictions.random_state_bytes
    assert kept > 0
    assert kept % torch.get_rng_state().numel() == 0
    assert "random generators" in found.plan.explain()
    assert_same_bits(dropped, found.variant)


# -- checkpoints in the user's own code


def checkpointed(kind: str):
    def factory():
        model = stack(0.3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def forward(x):
            if kind == "sequential":
                return checkpoint_sequential(model, 2, x, use_reentrant=False)
            for block in model:
                x = checkpoint(block, x, use_reentrant=kind == "reentrant")
            return x

        head = nn.Linear(WIDTH, WIDTH)
        first = nn.Linear(WIDTH, WIDTH)
        return lambda x: updated(optimizer, head(forward(first(x))).square().mean()), batch()

    return factory


@pytest.mark.parametrize(
    "kind", ["reentrant", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("plain", "sequential"))]
)
def test_checkpoints_are_undone_and_planned_again(kind):
    factory = checkpointed(kind)
    prepared, found = planned(factory, "95%")
    assert "undone" in " ".join(prepared.captured.steady.rewrites)
    assert len(prepared.captured.steady.checkpoints) == (1 if kind == "sequential" else 3)
    assert repeated(found)
    assert_same_bits(factory, found.variant)


def test_a_share_is_of_what_the_users_own_checkpoints_take():
    factory = checkpointed("plain")
    prepared, found = planned(factory, "100%")
    eager = contestants.eager_contestant(factory, 0)
    eager.run()
    eager.run()
    measured = contestants.measure_step(eager.run, eager.persistent).measured_peak_bytes
    as_written = prepared.as_written()
    assert as_written.peak_bytes == pytest.approx(measured, rel=0.05)
    steady = found.plan.programs[0]
    assert steady.budget_bytes == as_written.peak_with_workspace_bytes
    assert steady.budget_bytes < 0.6 * steady.predictions.baseline_peak_with_workspace_bytes


# -- operations and functions of the user's own


@torch.library.custom_op("neaptide_recompute::bend", mutates_args=())
def bend(x: torch.Tensor) -> torch.Tensor:
    return x.tanh()


@bend.register_fake
def _(x):
    return torch.empty_like(x)


bend.register_autograd(
    lambda ctx, g: g * (1 - ctx.saved_tensors[0].square()),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),
)


def bent():
    layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)

    def step(x):
        for layer in layers:
            x = bend(layer(x))
        return updated(optimizer, x.square().mean())

    return step, torch.randn(256, WIDTH)


@pytest.fixture
def undeclared(monkeypatch):
    monkeypatch.setattr(declared, "_rows", {})


@pytest.mark.usefixtures("undeclared")
def test_a_custom_operator_is_recomputed_only_when_it_is_declared_pure():
    bends = "neaptide_recompute.bend.default"
    _, found = planned(bent, "50%")
    assert bends not in repeated(found)
    assert_same_bits(bent, found.variant)
    neaptide.declare_pure("neaptide_recompute::bend")
    prepared, found = planned(bent, "50%")
    assert prepared.captured.steady.unknown_ops == ()
    assert repeated(found)[bends]
    assert_same_bits(bent, found.variant)


# -- kernels that give other bits on every run


def looked_up():
    table = nn.Parameter(torch.randn(8, WIDTH))
    model = stack(blocks=2)
    optimizer = torch.optim.SGD([table, *model.parameters()], lr=0.1)
    rows = torch.arange(256) % 8

    def step(x):
        sums = torch.zeros(8, WIDTH).index_add(0, rows, x)
        h = torch.tanh(sums @ table.t()) @ table
        return updated(optimizer, model(h[rows]).square().mean())

    return step, batch()


def test_nondeterministic_operations_are_recomputed_only_where_allowed():
    step, x = contestants.build(looked_up, 0)
    refusals = []
    for allowed in (False, True):
        prepared = prepare(step, (x,), run_operations=False, bits_may_vary=allowed)
        graph = prepared.captured.steady.graph
        added = next(n.id for n in graph.nodes if "index_add" in n.op)
        refusals.append(prepared.problem().refusals[added])
        plan = prepared.plan(Ask(Budget("50%"), limits=Limits(work=300))).plan
        assert plan.allow_nondeterministic == allowed
        assert neaptide.Plan.from_json(plan.to_json()) == plan
    assert refusals == ["gives other bits on every run", ""]


def test_dropout_is_recomputed_in_an_arena_within_the_predicted_bytes():
    prepared, found = planned(dropped, "35%", measured=True)
    assert repeated(found)["aten.bernoulli_.float"]
    assert_same_bits(dropped, in_arenas(prepared, found.variant))
    runner = contestants.planned_contestant("plan", dropped, 0, contestants.rebind(found.variant))
    runner.run()
    runner.run()
    memory = contestants.measure_step(runner.run, runner.persistent)
    assert memory.measured_peak_bytes == found.plan.programs[0].predictions.peak_bytes


def tied():
    embedding = nn.Embedding(19, WIDTH)
    body = stack(blocks=2)
    optimizer = torch.optim.SGD([*embedding.parameters(), *body.parameters()], lr=0.1, momentum=0.9)

    def step(tokens):
        logits = body(embedding(tokens)) @ embedding.weight.t()
        return updated(optimizer, functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()))

    return step, torch.randint(0, 19, (4, 64))


def accumulated():
    model = stack(0.2, blocks=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        total = torch.zeros(())
        for part in x.chunk(2):
            loss = model(part).square().mean() / 2
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    return step, batch()


@pytest.mark.parametrize("factory", [accumulated, pytest.param(tied, marks=pytest.mark.slow)])
def test_a_step_is_recomputed_bit_for_bit(factory):
    _, found = planned(factory)
    assert repeated(found), "the budget asks for recomputation"
    assert_same_bits(factory, found.variant)


@pytest.mark.parametrize(
    "budget", ["100%", *(pytest.param(one, marks=pytest.mark.slow) for one in (None, "80%"))]
)
def test_a_search_without_time_is_no_worse_than_the_users_own_checkpoints(budget):
    factory = checkpointed("plain")
    step, x = contestants.build(factory, 0)
    prepared = prepare(step, (x,), run_operations=False)
    found = prepared.plan(Ask(Budget(budget), limits=Limits(work=0)))
    steady, own = found.plan.programs[0].predictions, prepared.as_written()
    assert steady.peak_with_workspace_bytes <= own.peak_with_workspace_bytes
    assert steady.seconds <= own.seconds or steady.peak_with_workspace_bytes < own.peak_with_workspace_bytes
    assert_same_bits(factory, found.variant)
