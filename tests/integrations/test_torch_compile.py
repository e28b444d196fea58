"""The backend of `torch.compile`: eager's bits, peaks as predicted, and what users may tell it."""

from __future__ import annotations

import copy
import tomllib
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn import functional as F

from neaptide.cost.cards.allocator_events import record
from neaptide.errors import CaptureError, InfeasibleBudget, UsageError
from neaptide.integrations.torch_compile import ledger as ledger_module
from neaptide.integrations.torch_compile import neaptide
from neaptide.integrations.torch_compile.ledger import GraphBreakWarning, Ledger, ledgers
from neaptide.integrations.torch_compile.options import Options, read_options
from neaptide.integrations.torch_compile.programs import draws, emit
from neaptide.runtime.measuring.meter import storage_bytes

Step = Callable[..., Any]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Any:
    torch._dynamo.reset()
    monkeypatch.setattr(ledger_module, "_ledgers", [])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        yield
    torch._dynamo.reset()


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = F.gelu(layer(x))
        return x.square().mean()


class Norms(nn.Module):
    """Convolutions with batch norm, whose statistics are written, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(3))
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + F.relu(norm(conv(x)))
        return self.head(F.dropout(x.mean((2, 3)), 0.2, self.training)).logsumexp(1).sum()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.blocks = nn.ModuleList(nn.Linear(16, 48) for _ in range(2))
        self.norm = nn.LayerNorm(16)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            q, k, v = block(self.norm(x)).chunk(3, -1)
            x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.cross_entropy((x @ self.embed.weight.T).flatten(0, 1), ids.flatten())


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "mlp": (Mlp, lambda: torch.randn(64, 32)),
    "norms": (Norms, lambda: torch.randn(4, 4, 16, 16)),
    "attention": (Attention, lambda: torch.randint(0, 50, (4, 16))),
}


def compiled(model: Any, **options: Any) -> Any:
    given = {"time_limit": 1, **options}
    return torch.compile(model, backend=lambda module, inputs: neaptide(module, inputs, options=given))


def the_ledger() -> Ledger:
    (found,) = ledgers()
    return found


def state_after(model: nn.Module, step: Step, batch: torch.Tensor, calls: int = 2) -> list[torch.Tensor]:
    torch.manual_seed(3)
    losses = []
    for _ in range(calls):
        loss = step(batch)
        loss.backward()
        losses.append(loss.detach())
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return [*losses, *gradients, *model.buffers()]


def made(name: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    model, batch = MODELS[name]
    return model(), batch()


def assert_equal(ours: list[torch.Tensor], eagers: list[torch.Tensor]) -> None:
    assert len(ours) == len(eagers)
    for mine, other in zip(ours, eagers, strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("peak", [None, pytest.param("85%", marks=pytest.mark.slow), "min"])
def test_a_model_in_training_has_eagers_bits_at_the_predicted_peak(name: str, peak: str | None) -> None:
    model, batch = made(name)
    eager = copy.deepcopy(model)
    step = compiled(model, peak=peak, on_infeasible="best")
    assert_equal(state_after(model, step, batch), state_after(eager, eager, batch))

    def run() -> None:
        step(batch).backward()
        model.zero_grad()

    model.zero_grad()
    persistent = [*model.parameters(), *model.buffers(), batch]
    (piece,) = the_ledger().pieces.values()
    measured = record(run, persistent=persistent).peak_bytes(storage_bytes(persistent))
    # A batch norm that runs again makes no statistics, whose scratch is predicted for it, too.
    assert piece.predicted_peak_bytes - (64 if name == "norms" and peak else 0) <= measured
    assert measured <= piece.predicted_peak_bytes
    assert bool(piece.recomputed) == (peak is not None)


def test_models_of_one_class_run_at_their_predicted_peaks_whatever_was_compiled_later() -> None:
    steps = []
    for peak in (None, "min"):
        model, batch = made("mlp")
        step = compiled(model, peak=peak)
        step(batch).backward()
        model.zero_grad()
        steps.append((model, batch, step))
    found = []
    for model, batch, step in steps:
        persistent = [*model.parameters(), batch]
        trace = record(lambda step=step, batch=batch: step(batch).backward(), persistent=persistent)
        found.append(trace.peak_bytes(storage_bytes(persistent)))
    assert found == [next(iter(ledger.pieces.values())).predicted_peak_bytes for ledger in ledgers()]
    assert found[1] < found[0]


def test_the_peak_never_rises_with_a_smaller_budget() -> None:
    peaks = []
    for peak in ("90%", "80%", "min"):
        torch._dynamo.reset()
        model, batch = made("mlp")
        compiled(model, peak=peak, on_infeasible="best")(batch).backward()
        (piece,) = ledgers()[-1].pieces.values()
        peaks.append(piece.predicted_peak_bytes)
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < peaks[0]


def test_a_budget_below_the_floor_is_an_error_with_what_is_live_or_the_plan_of_min() -> None:
    model, batch = made("mlp")
    with pytest.raises(InfeasibleBudget) as caught:
        compiled(model, peak="5%")(batch)
    assert caught.value.smallest_peak_bytes > caught.value.lower_bound_bytes > 0
    assert "layers.0.weight" in str(caught.value)
    assert "live at that peak" in str(caught.value)
    peaks = []
    for peak in ("5%", "min"):
        torch._dynamo.reset()
        compiled(model, peak=peak, on_infeasible="best")(batch).backward()
        peaks.append(next(iter(ledgers()[-1].pieces.values())).predicted_peak_bytes)
    assert peaks[0] == peaks[1]


@pytest.mark.parametrize(
    ("given", "mode", "told"),
    [
        ({"peek": "60%"}, None, "did you mean 'peak'"),
        ({"lowering": "triton"}, None, "choose 'aten'"),
        ({"on_infeasible": "ignore"}, None, "choose 'raise' or 'best'"),
        ({"numerics": "exact"}, None, "choose 'bitwise' or 'close'"),
        ({"peak": "sixty"}, None, "sixty"),
        ({"time_limit": 0}, None, "leaves no time"),
        (None, "max-autotune", "has no mode 'max-autotune'"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(given: Any, mode: str | None, told: str) -> None:
    with pytest.raises(UsageError, match=r".") as caught:
        read_options(given, mode)
    assert told in str(caught.value)


def test_a_wrong_option_reaches_the_user_as_it_is() -> None:
    model, batch = made("mlp")
    with pytest.raises(UsageError, match="no option 'peek'"):
        compiled(model, peek="60%")(batch)


class Dropped(Mlp):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + F.dropout(F.gelu(layer(x)), 0.3)
        return x.square().mean()


def test_masks_are_drawn_again_with_eagers_bits_while_graphs_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    again = []

    def draw_again(*args: Any) -> Any:
        again.append(args[2])
        return draws.draw_again(*args)

    monkeypatch.setattr(emit, "draw_again", draw_again)
    torch.manual_seed(0)
    model, batch = Dropped(), torch.randn(64, 32)
    eager = copy.deepcopy(model)
    found = []
    for one, call in ((model, compiled(model, peak="min")), (eager, eager)):
        torch.manual_seed(1)
        first, second = call(batch), call(batch)
        second.backward()
        between = torch.rand(3)
        first.backward()
        found.append(
            [first.detach(), second.detach(), between, torch.rand(3), *(p.grad for p in one.parameters())]
        )
    assert again
    assert_equal(*found)


class Language(nn.Module):
    """A few layers and logits that are most of the bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layer = nn.Embedding(800, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 800, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits = self.head(F.gelu(self.layer(self.embed(ids))))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def test_logits_of_a_loss_in_parts_are_never_whole_and_its_tangent_is_a_factor() -> None:
    torch.manual_seed(0)
    model, batch = Language(), torch.randint(0, 800, (4, 32))
    eager = copy.deepcopy(model)
    step = compiled(model, peak="min", numerics="close")
    for one, call in ((model, step), (eager, eager)):
        (call(batch) * 1000).backward()
        (call(batch) * -0.5).backward()
        for parameter in one.parameters():
            assert parameter.grad is not None
    for mine, other in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-5, atol=1e-5)
    (piece,) = the_ledger().pieces.values()
    assert "parts along dim" in str(piece)
    logits = 4 * 32 * 800 * 4
    held = [*model.parameters(), batch]
    model.zero_grad()
    persistent = storage_bytes(held)
    measured = record(lambda: step(batch).backward(), persistent=held).peak_bytes(persistent)
    assert measured == piece.predicted_peak_bytes
    assert measured - persistent - storage_bytes(model.parameters()) < logits


class Clipped(torch.autograd.Function):
    """Its backward is not linear."""

    @staticmethod
    def forward(_context: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(_context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.clamp(-1e-3, 1e-3)


class ClippedLanguage(Language):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits = self.head(Clipped.apply(F.gelu(self.layer(self.embed(ids)))))
        return F.cross_entropy(Clipped.apply(logits)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def test_a_backward_that_is_not_linear_stays_after_the_border() -> None:
    torch.manual_seed(0)
    model, batch = ClippedLanguage(), torch.randint(0, 800, (4, 32))
    eager = copy.deepcopy(model)
    (compiled(model, peak="min", numerics="close")(batch) * 1000).backward()
    (eager(batch) * 1000).backward()
    for mine, other in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)


class Branching(Mlp):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,)).sum()


def test_what_no_program_can_carry_is_refused_with_the_line_of_the_user() -> None:
    with torch.no_grad(), pytest.raises(CaptureError, match=r"test_torch_compile\.py:\d+"):
        compiled(Branching())(torch.ones(4, 32))


def test_options_have_defaults() -> None:
    assert read_options(None) == Options()
    assert read_options({"time_limit": "1m"}).seconds == 60


def test_a_model_in_inference_is_ordered() -> None:
    model, batch = made("norms")
    model.eval()
    with torch.no_grad():
        assert torch.equal(compiled(model)(batch), model(batch))
    (piece,) = the_ledger().pieces.values()
    assert piece.saved_bytes == piece.recomputed == 0


def test_one_program_serves_all_sizes_of_a_dynamic_dim() -> None:
    model, _ = made("attention")
    eager = copy.deepcopy(model)
    step = compiled(model, peak="min")
    torch._dynamo.utils.counters.clear()
    for length in (4, 7):
        batch = torch.randint(0, 50, (length, 16))
        torch._dynamo.mark_dynamic(batch, 0)
        assert_equal(state_after(model, step, batch, 1), state_after(eager, eager, batch, 1))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


class Broken(Mlp):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.layers[0](x))
        torch._dynamo.graph_break()
        return F.gelu(self.layers[1](x)).square().mean()


def test_graphs_of_one_model_share_a_budget_and_breaks_are_told() -> None:
    torch.manual_seed(0)
    model, batch = Broken(), torch.randn(64, 32)
    eager = copy.deepcopy(model)
    step = compiled(model, peak="100%", on_infeasible="best")
    with pytest.warns(GraphBreakWarning, match=r"test_torch_compile.py:\d+") as told:
        ours = state_after(model, step, batch)
    assert len([one for one in told if one.category is GraphBreakWarning]) == 1
    assert_equal(ours, state_after(eager, eager, batch))
    first, second = the_ledger().pieces.values()
    owned = storage_bytes(model.layers[1].parameters())
    assert first.outside_bytes == owned
    owned = storage_bytes([*model.layers[0].parameters(), batch])
    assert second.outside_bytes == first.saved_bytes + owned > owned
    assert first.between_bytes > 0


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:4]:
            x = F.gelu(layer(x)).tanh()
        torch._dynamo.graph_break()
        for layer in self.layers[4:]:
            x = F.gelu(layer(x)).tanh()
        return x.square().mean()


@pytest.mark.filterwarnings(
    "ignore::neaptide.integrations.torch_compile.GraphBreakWarning",
    "ignore:The .grad attribute of a Tensor",  # Dynamo's own look at inputs of later graphs
)
def test_an_earlier_graph_is_planned_again_for_what_runs_between_its_passes() -> None:
    torch.manual_seed(0)
    model, batch = Deep(), torch.randn(256, 32)
    eager = copy.deepcopy(model)
    held = [*model.parameters(), batch]
    budget = storage_bytes(held) + 10 * batch.nbytes
    step = compiled(model, peak=f"{budget}B")
    assert_equal(state_after(model, step, batch, 3), state_after(eager, eager, batch, 3))
    first, second = the_ledger().pieces.values()
    assert first.recomputed > 0
    model.zero_grad()
    measured = record(lambda: step(batch).backward(), persistent=held).peak_bytes(storage_bytes(held))
    assert measured == max(first.predicted_peak_bytes, second.predicted_peak_bytes) <= budget


def test_models_that_share_options_have_ledgers_of_their_own() -> None:
    given = {"time_limit": 1}
    for name in ("mlp", "attention"):
        model, batch = made(name)
        backend = lambda module, inputs: neaptide(module, inputs, options=given)  # noqa: E731
        torch.compile(model, backend=backend)(batch).backward()
    assert [len(ledger.pieces) for ledger in ledgers()] == [1, 1]
    assert all(piece.outside_bytes == 0 for ledger in ledgers() for piece in ledger.pieces.values())


class Checkpointed(Mlp):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.utils.checkpoint.checkpoint(lambda y, f=layer: F.gelu(f(y)), x, use_reentrant=False)
        with torch.autocast("cpu", torch.bfloat16):
            return self.layers[0](x).float().square().mean()


def test_checkpoints_and_autocast_of_the_user_are_planned_anew() -> None:
    torch.manual_seed(0)
    model, batch = Checkpointed(), torch.randn(16, 32)
    eager = copy.deepcopy(model)
    step = compiled(model, peak="min")
    assert_equal(state_after(model, step, batch, 1), state_after(eager, eager, batch, 1))


class Several(nn.Module):
    """Outputs of several kinds: one that nobody uses, an input, a number, nothing, a view of an intermediate."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[Any, ...]:
        y = self.layer(x).tanh()
        return y.sum(), y.exp(), x, 3, None, y.T


def test_several_outputs_are_those_of_eager() -> None:
    torch.manual_seed(0)
    model, batch = Several(), torch.randn(4, 8)
    eager = copy.deepcopy(model)
    got, wanted = compiled(model, peak="min")(batch), eager(batch)
    assert got[2] is batch
    assert got[3:5] == wanted[3:5] == (3, None)
    for mine, other in zip(got, wanted, strict=True):
        assert not isinstance(mine, torch.Tensor) or torch.equal(mine, other)
    for outputs in (got, wanted):
        (outputs[0] * 2 + outputs[5].square().sum()).backward()
    assert torch.equal(model.layer.weight.grad, eager.layer.weight.grad)


class Aliases(Several):
    """Returns an input as it is and as a view, and overwrites another one, beside a parameter."""

    def forward(self, x: torch.Tensor, count: torch.Tensor) -> tuple[Any, ...]:
        count.add_(1)
        return self.layer(x).sin(), x, x.T, self.layer.weight


def test_calls_that_hold_on_to_graphs_and_inputs_that_are_overwritten_are_those_of_eager() -> None:
    torch.manual_seed(0)
    model = Aliases()
    eager = copy.deepcopy(model)
    found = []
    for one, call in ((model, compiled(model, peak="min")), (eager, eager)):
        x, count = torch.ones(4, 8).requires_grad_(), torch.zeros(3)
        first, same, turned, weight = call(x, count)
        assert same is x
        assert weight is one.layer.weight
        second = call(x, count)[0]  # a second graph, while the first one waits
        loss = first.mean() + second.sum() + turned.sum()
        loss.backward(retain_graph=True)
        loss.backward()
        found.append([loss.detach(), count, x.grad, *(p.grad for p in one.parameters())])
    assert_equal(*found)


def test_the_package_names_the_backend() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    module, _, name = tomllib.loads(text)["project"]["entry-points"]["torch_dynamo_backends"][
        "neaptide"
    ].partition(":")
    assert getattr(import_module(module), name) is neaptide
