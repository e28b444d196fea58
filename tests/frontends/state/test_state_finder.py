"""State is found wherever a plain training script keeps it."""

from __future__ import annotations

import functools
import types
from collections import namedtuple
from dataclasses import dataclass, field

import torch
from torch import nn

from frontends.steps import update
from neaptide.frontends.state.state_finder import find_state
from neaptide.frontends.torch_step import capture_step
from support.step_checks import assert_same_bits, joined, planned

GLOBAL_MODEL = nn.Linear(4, 3)
GLOBAL_OPTIMIZER = torch.optim.SGD(GLOBAL_MODEL.parameters(), lr=0.1, momentum=0.9)
GLOBAL_SCALE = 0.5
GLOBAL_OFFSET = torch.ones(3)
Pair = namedtuple("Pair", ["left", "right"])


def batch():
    return torch.randn(5, 4)


def fresh(**options):
    model = nn.Linear(4, 3)
    return model, torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9, **options})


def in_closure():
    model, optimizer = fresh()
    return lambda x: update(model(x).square().mean(), optimizer)


def in_nested_closures():
    model, optimizer = fresh()
    scale = torch.tensor(2.0)

    def loss_of(x):
        def inner(y):
            return (model(y) * scale).square().mean()

        return inner(x)

    def step(x):
        return update(loss_of(x), optimizer)

    return step


def in_globals():
    with torch.no_grad():
        GLOBAL_MODEL.weight.copy_(torch.randn(3, 4))
        GLOBAL_MODEL.bias.zero_()
    GLOBAL_OPTIMIZER.state.clear()
    GLOBAL_OPTIMIZER.zero_grad()

    def step(x):
        return update(global_loss(x), GLOBAL_OPTIMIZER)

    return step


def global_loss(x):
    return ((GLOBAL_MODEL(x) + GLOBAL_OFFSET) * GLOBAL_SCALE).square().mean()


class Trainer:
    smoothing = 0.25

    def __init__(self):
        self.model, self.optimizer = fresh()
        self.weights = {"loss": torch.tensor([1.0, 2.0, 3.0])}
        self.calls = 0

    def loss(self, x):
        return (self.model(x) * self.weights["loss"]).square().mean() * self.factor

    @property
    def factor(self):
        return self.smoothing * 2

    def step(self, x):
        return update(self.loss(x), self.optimizer)

    __call__ = step


class SlottedTrainer:
    __slots__ = ("model", "optimizer", "scale")

    def __init__(self):
        self.model, self.optimizer = fresh()
        self.scale = torch.tensor(0.5)

    def step(self, x):
        return update((self.model(x) * self.scale).square().mean(), self.optimizer)


@dataclass(frozen=True)
class Settings:
    scale: float = 0.5
    offset: torch.Tensor = field(default_factory=lambda: torch.ones(3))


def in_config_objects():
    model, optimizer = fresh()
    parts = {"model": model, "optimizers": [optimizer]}
    settings = Settings()
    plain = types.SimpleNamespace(power=2, nested={"shift": torch.tensor(0.1)})

    def step(x):
        out = parts["model"](x) * settings.scale + settings.offset + plain.nested["shift"]
        return update(out.pow(plain.power).mean(), parts["optimizers"][0])

    return step


def in_partial():
    model, optimizer = fresh()

    def step(model, scale, x, *, optimizer):
        return update((model(x) * scale).square().mean(), optimizer)

    return functools.partial(step, model, torch.tensor(0.5), optimizer=optimizer)


def in_defaults():
    model, optimizer = fresh()

    def step(x, scale=torch.tensor(0.5), *, offset=torch.ones(3)):  # noqa: B008
        return update((model(x) * scale + offset).square().mean(), optimizer)

    return step


def in_tuples():
    model, optimizer = fresh()
    pair = (torch.tensor(0.5), (torch.ones(3), 2.0))
    named = Pair(torch.tensor(0.1), right=[torch.tensor(0.2)])

    def step(x):
        out = model(x) * pair[0] + pair[1][0] + named.left * named.right[0]
        return update(out.square().mean(), optimizer)

    return step


def two_modules_two_optimizers():
    encoder, decoder = nn.Linear(4, 6), nn.Linear(6, 3)
    first = torch.optim.SGD(encoder.parameters(), lr=0.1, momentum=0.9)
    second = torch.optim.AdamW(decoder.parameters(), lr=0.01)

    def step(x):
        loss = decoder(encoder(x).tanh()).square().mean()
        loss.backward()
        first.step()
        second.step()
        encoder.zero_grad()
        decoder.zero_grad()
        return loss.detach()

    return step


def two_optimizers_one_model():
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    optimizers = [
        torch.optim.SGD(model[0].parameters(), lr=0.1),
        torch.optim.Adam([{"params": [model[2].weight]}, {"params": [model[2].bias], "lr": 0.5}], lr=0.01),
    ]

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return step


def loose_tensor_that_is_written():
    model, optimizer = fresh()
    average = torch.zeros(3)

    def step(x):
        out = model(x)
        average.mul_(0.9).add_(out.detach().mean(0), alpha=0.1)
        return update((out - average).square().mean(), optimizer)

    return step


def only_in_the_optimizer():
    weight, bias = nn.Parameter(torch.randn(3, 4)), torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight, bias], lr=0.1, momentum=0.9)

    def step(x):
        weight, bias = optimizer.param_groups[0]["params"]
        return update((x @ weight.t() + bias).square().mean(), optimizer)

    return step


def tied():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Tanh(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return lambda x: update(model(x).square().mean(), optimizer)


class Lazy(nn.Module):
    """Plain tensors, lists of modules and settings as attributes."""

    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 4) for _ in range(2)]
        self.scale = torch.tensor(0.7)
        self.settings = Settings()

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).tanh()
        return x * self.scale + self.settings.scale


def in_unregistered_modules():
    model = Lazy()
    optimizer = torch.optim.SGD([p for layer in model.layers for p in layer.parameters()], lr=0.1)
    return lambda x: update(model(x).square().mean(), optimizer)


def same_names():
    """Loose tensors may be called what a parameter is called."""
    model, optimizer = fresh()
    weight, bias = torch.tensor(2.0), {"bias": torch.tensor(3.0)}
    return lambda x: update((model(x) * weight + bias["bias"]).square().mean(), optimizer)


HOMES = [
    in_closure,
    in_nested_closures,
    in_globals,
    lambda: Trainer().step,
    Trainer,
    lambda: SlottedTrainer().step,
    in_config_objects,
    in_partial,
    in_defaults,
    in_tuples,
    two_modules_two_optimizers,
    two_optimizers_one_model,
    loose_tensor_that_is_written,
    only_in_the_optimizer,
    tied,
    in_unregistered_modules,
    same_names,
]


def test_state_is_found():
    assert_same_bits(joined(*(lambda home=home: (home(), batch()) for home in HOMES)))


def test_state_that_is_out_of_reach_can_be_named():
    model, optimizer = fresh()
    holder = [model]

    class Opaque:
        __slots__ = ("get",)

    opaque = Opaque()
    opaque.get = holder.__getitem__  # a builtin method: nothing to look into

    def step(x):
        return update(opaque.get(0)(x).square().mean(), optimizer)

    captured = capture_step(step, (batch(),), state={"model": model})
    assert {slot.role for slot in captured.steady.inputs} == {"parameter", "optimizer_state", "rate", "batch"}
    assert captured.state.modules == {"state['model']": model}


def test_two_optimizers_keep_two_names():
    class Half:
        def __init__(self):
            self.model, self.optimizer = fresh()

    class Both:
        def __init__(self):
            self.left, self.right = Half(), Half()

        def step(self, x):
            update(self.left.model(x).square().mean(), self.left.optimizer)
            return update(self.right.model(x).square().mean(), self.right.optimizer)

    state = find_state(Both().step)
    assert len(state.optimizers) == 2
    assert len(state.modules) == 2
    assert len({slot.name for slot in state.tensors}) == 4
    assert_same_bits(lambda: (Both().step, batch()))


def test_unused_loose_tensors_are_no_inputs():
    model, optimizer = fresh()
    data = [torch.randn(5, 4) for _ in range(20)]
    first = data[0]

    def step(x):
        assert len(data) == 20
        return update((model(x) + first.mean()).square().mean(), optimizer)

    captured = capture_step(step, (batch(),))
    assert [s.name for s in captured.steady.inputs if s.role == "tensor"] == ["first"]
    assert [s.name for s in captured.state.tensors if s.role == "tensor"] == ["first"]
    assert first is data[0]


def test_data_sources_are_left_alone():
    model, optimizer = fresh()
    loader = torch.utils.data.DataLoader([torch.randn(4) for _ in range(6)], batch_size=3)
    generator = (i for i in range(3))
    iterator = iter(loader)
    many = list(range(50_000))
    tensors = [torch.zeros(1)] * 20_000
    hidden = (torch.zeros(2), {"never": torch.zeros(2)})

    def step(x):
        if x is None:
            return loader, generator, iterator, many, tensors, hidden
        return update(model(x).square().mean(), optimizer)

    run = planned(step, batch())
    run(batch())
    assert list(generator) == [0, 1, 2]
    assert len(list(iterator)) == 2
    assert run.counts.replans == 0


def test_cycles_end():
    model, optimizer = fresh()
    ring = {"model": model}
    ring["ring"] = ring
    node = types.SimpleNamespace(scale=0.5)
    for _ in range(5000):  # a long chain
        node = types.SimpleNamespace(after=node, scale=0.5)
    node.self = node

    def step(x):
        return update(ring["ring"]["model"](x).square().mean() * node.scale, optimizer)

    captured = capture_step(step, (batch(),))
    assert len(captured.state.tensors) == 2


def test_attributes_that_only_the_caller_reads_are_no_guards():
    trainer = Trainer()
    x = batch()
    run = planned(trainer.step, x)
    for _ in range(3):
        trainer.calls += 1
        trainer.history = [*getattr(trainer, "history", []), float(run(x))]
    assert run.counts.replans == 0
    trainer.weights["loss"] = torch.tensor([3.0, 2.0, 1.0])
    run(x)
    assert run.counts.replans == 0


unrelated = torch.zeros(1 << 10)


def test_a_global_that_is_called_like_an_attribute_is_not_the_steps():
    """`self.unrelated` is no use of the global `unrelated`."""

    class Trainer:
        def __init__(self) -> None:
            self.unrelated = nn.Linear(2, 2)

        def step(self, batch):
            return self.unrelated(batch).sum()

    found = find_state(Trainer().step)
    assert {slot.name for slot in found.tensors} == {"weight", "bias"}
