"""Steps captured for a card that is not there."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from neaptide import zoo
from neaptide.errors import CaptureError, UsageError
from neaptide.frontends.card.pretended import built_for, card_named, current_card, pretended
from neaptide.frontends.torch_step import capture_step
from neaptide.policy.prepared_step import prepare
from support.step_checks import needs_varying_dims

CARD = card_named("rtx4090")


def captured(spec: str, device: str = "rtx4090") -> Any:
    """The program that a model runs on a card."""
    card = card_named(device)
    with built_for(card):
        step, batch = zoo.factory(spec, device="cuda")()
    return capture_step(step, (batch,), card=card).steady


def operations(spec: str, device: str = "rtx4090") -> Counter[str]:
    """What it consists of, by name."""
    program = captured(spec, device)
    assert program.unknown_ops == ()
    return Counter(node.op.removeprefix("aten.").partition(".")[0] for node in program.graph.nodes)


@pytest.mark.parametrize(
    ("spec", "device", "kernel"),
    [
        ("gpt2@tiny,layers=1,precision=bf16,dropout=0.1", "rtx4090", "_scaled_dot_product_flash_attention"),
        ("btlm@tiny,layers=1,precision=bf16", "h100", "_scaled_dot_product_cudnn_attention"),
        ("btlm@tiny,layers=1", "rtx4090", "_scaled_dot_product_efficient_attention"),
        ("lstm@tiny,dropout=0.1", "rtx4090", "_cudnn_rnn"),
        ("lstm@tiny,precision=bf16", "rtx4090", "_cudnn_rnn"),
    ],
)
def test_the_kernels_are_those_of_the_card(spec: str, device: str, kernel: str) -> None:
    found = operations(spec, device)
    assert found[kernel] > 0
    assert found[f"{kernel}_backward"] == found[kernel]
    assert not any("for_cpu" in name or "mkldnn" in name for name in found)


def test_recurrent_weights_in_one_block_are_handed_on_as_that_block() -> None:
    layer = nn.LSTM(8, 8, num_layers=2)
    block = torch.cat([weight.detach().flatten() for weight in layer.parameters()])
    begin = 0
    for weight in layer.parameters():
        weight.data = block[begin : begin + weight.numel()].view(weight.shape)
        begin += weight.numel()

    def step(x: Tensor) -> Tensor:
        loss: Tensor = layer(x)[0].square().mean()
        loss.backward()
        return loss

    graph = capture_step(step, (torch.randn(5, 2, 8),), card=CARD).steady.graph
    (call,) = (node for node in graph.nodes if node.op == "aten._cudnn_rnn.default")
    shared = graph.values[call.outputs[4]].storage
    assert graph.storages[shared].nbytes.constant_value() == 4 * begin
    assert [graph.values[v].storage for v in call.inputs].count(shared) == 9  # eight weights, and all of them


def test_nothing_is_left_behind() -> None:
    before = torch.cuda.is_available(), torch.autograd._engine_run_backward, torch.cuda._lazy_init
    captured("mlp@tiny")
    assert current_card() is None
    assert (torch.cuda.is_available(), torch.autograd._engine_run_backward, torch.cuda._lazy_init) == before
    x = torch.ones(3, requires_grad=True)
    x.exp().sum().backward()
    assert x.grad is not None


def trains(net: nn.Module) -> Any:
    """A step with the plainest update."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        out = net(x)
        loss = (out[0] if isinstance(out, tuple) else out).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@pytest.mark.parametrize(
    ("norm", "shape", "kernel"),
    [
        (nn.BatchNorm2d(4), (2, 4, 6, 6), "cudnn_batch_norm"),
        (nn.BatchNorm1d(4), (8, 4), "native_batch_norm"),
        (nn.BatchNorm2d(4, affine=False), (2, 4, 6, 6), "native_batch_norm"),
        (nn.BatchNorm2d(4, eps=1e-6), (2, 4, 6, 6), "cudnn_batch_norm"),
        (nn.BatchNorm3d(4), (2, 4, 6, 6, 6), "cudnn_batch_norm"),
        (nn.BatchNorm2d(4).to(torch.bfloat16), (2, 4, 6, 6), "native_batch_norm"),
    ],
)
def test_batch_norms_are_those_of_the_card(norm: nn.Module, shape: tuple[int, ...], kernel: str) -> None:
    dtype = next((p.dtype for p in norm.parameters()), torch.float32)
    net = nn.Sequential(nn.PReLU(dtype=dtype), norm)
    graph = capture_step(trains(net), (torch.ones(shape, dtype=dtype),), card=CARD).steady.graph
    names = [node.op.removeprefix("aten.") for node in graph.nodes if "batch_norm" in node.op]
    assert names[-1].startswith(f"{kernel}_backward")
    assert any(name.startswith((kernel, f"_{kernel}_legit")) for name in names)
    assert all(node.op != "aten.clone.default" for node in graph.nodes)  # of what cuDNN reserved


def script() -> Any:
    """As somebody writes it who has a card."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).cuda()
    net[2].weight = nn.Parameter(torch.randn(4, 8, device="cuda:0"))
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cuda")
    batch = {"x": torch.randn(16, 8), "y": torch.randint(4, (16,), device=device)}

    def step(batch: dict[str, Tensor]) -> Tensor:
        with torch.autocast(device.type, dtype=torch.float16):
            scores = net(batch["x"].to(device, non_blocking=True))
            loss = nn.functional.cross_entropy(scores, batch["y"].cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss.detach()

    return step, batch


def test_a_number_written_down_on_the_card_is_copied_there() -> None:
    def step(x: Tensor) -> Tensor:
        least = torch.tensor(torch.finfo(x.dtype).min, dtype=x.dtype, device=x.device)
        return torch.where(x > 0, x, least)

    graph = capture_step(step, (torch.ones(3),), card=CARD).steady.graph
    chosen = graph.nodes[-1]
    devices = [graph.storages[graph.values[value].storage or 0].device for value in chosen.inputs]
    assert devices == ["cuda:0"] * 3


def test_a_script_for_a_card_is_built_without_one() -> None:
    with built_for(CARD):
        step, batch = script()
    program = capture_step(step, (batch,), card=CARD).steady
    graph = program.graph
    assert "float16" in {value.dtype for value in graph.values}
    large = [storage.device for storage in graph.storages if storage.nbytes.evaluate({}) > 8]
    assert set(large) == {"cuda:0"}


def test_state_on_the_host_is_taken_to_lie_on_the_card() -> None:
    """Built on the CPU, and never moved: parameters, moments and batch are the card's; counts of steps stay."""
    net = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(net.parameters())

    def step(x: Tensor) -> Tensor:
        loss = net(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    x = torch.ones(2, 4)
    for _ in range(2):
        prepared = prepare(step, (x,), device="rtx4090")
        graph, program = prepared.captured.steady.graph, prepared.captured.steady
        storages = [graph.values[value].storage for value in graph.inputs]
        devices = {
            slot.name: graph.storages[storage].device
            for storage, slot in zip(storages, program.inputs, strict=True)
            if storage is not None
        }
        on_host = {name for name, device in devices.items() if device == "cpu"}
        assert prepared.captured_on == "cuda"
        assert all(name.endswith((".step", "].lr")) for name in on_host)
        assert devices["weight"] == devices["optimizer.state.weight.exp_avg"] == "cuda:0"
        step(x)  # now the moments exist


@needs_varying_dims
def test_a_shape_may_vary() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))

    graph = capture_step(
        trains(net), (torch.ones(3, 4),), dynamic={"x": {0: (2, 64)}}, card=CARD
    ).steady.graph
    assert [(dim.low, dim.high) for dim in graph.dims] == [(2, 64)]


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn_tanh"])
def test_recurrent_layers_are_one_call(name: str) -> None:
    kinds = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn_tanh": nn.RNN}
    net = kinds[name](4, 6, num_layers=2, bidirectional=True, dropout=0.5, batch_first=True)
    graph = capture_step(trains(net), (torch.ones(3, 5, 4),), card=CARD).steady.graph
    found = Counter(node.op for node in graph.nodes)
    assert found["aten._cudnn_rnn.default"] == found["aten._cudnn_rnn_backward.default"] == 1
    assert found["aten._cudnn_init_dropout_state.default"] == 1
    assert "aten.clone.default" not in found  # of what is reserved: the graph is not kept


def test_recurrent_layers_under_autocast_take_float16_from_one_block() -> None:
    """Whatever dtype autocast has; gradients of weights are float32 again."""
    net = nn.LSTM(4, 6)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = net(x)[0]
        loss = out.float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    graph = capture_step(step, (torch.ones(5, 3, 4),), card=CARD).steady.graph
    (layer,) = (node for node in graph.nodes if node.op == "aten._cudnn_rnn.default")
    sequences, *weights = [graph.values[value] for value in layer.inputs][:5]
    assert {value.dtype for value in (sequences, *weights)} == {"float16"}
    assert len({value.storage for value in weights}) == 1
    assert tuple(map(str, graph.values[layer.inputs[1]].shape)) == ("24", "4")


def test_an_unknown_card_gets_the_nearest_names() -> None:
    with pytest.raises(UsageError, match="rtx9040") as caught:
        card_named("rtx9040")
    assert "rtx4090" in caught.value.render()
    assert card_named(None) is None


def test_a_torch_without_its_table_of_guards_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from neaptide.errors import UnsupportedTorch
    from neaptide.frontends.card import _torch_private

    monkeypatch.setattr(_torch_private, "device_guards", lambda: None)
    with pytest.raises(UnsupportedTorch, match="cannot pretend a card"), pretended(CARD):
        pass
    assert current_card() is None


def test_an_operation_without_a_fake_kernel_is_named() -> None:
    """Its real kernel would run on made-up tensors of the card."""
    with torch.library._scoped_library("card_tests", "DEF") as library:
        library.define("odd(Tensor x) -> Tensor")
        library.impl("odd", torch.Tensor.clone, "CUDA")

        def step(x: Tensor) -> Tensor:
            return torch.ops.card_tests.odd(x)  # type: ignore[no-any-return]

        with pytest.raises(CaptureError, match="card_tests") as caught:
            capture_step(step, (torch.ones(3),), card=CARD)
        assert "test_captures.py" in caught.value.render()
