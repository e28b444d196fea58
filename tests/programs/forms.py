"""How people write steps: trainers, callables, partials, hooks, accumulation, schedulers, logs, averages, compilers."""

from __future__ import annotations

import functools
import types
from collections import defaultdict, namedtuple
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family

FAMILY = Family("forms")


def net():
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3))


def labelled(count=64):
    return torch.randn(count, 6), torch.randint(0, 3, (count,))


class Trainer:
    """Everything in attributes, the step a bound method that calls others."""

    def __init__(self, model, **options):
        self.model = model
        self.options = types.SimpleNamespace(**options)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=self.options.lr)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=self.options.smoothing)

    def loss(self, batch):
        inputs, labels = batch
        return self.criterion(self.model(inputs), labels)

    def training_step(self, batch):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(batch)
        loss.backward()
        if self.options.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip)
        self.optimizer.step()
        return loss.detach()


@FAMILY.add("trainer", "bound method", "clip")
def bound_method_of_a_trainer():
    return Trainer(net(), lr=1e-3, smoothing=0.1, clip=1.0).training_step, labelled()


@FAMILY.add("callable object", "dataclass")
def callable_dataclass():
    @dataclass
    class Step:
        model: nn.Module
        optimizer: torch.optim.Optimizer
        weights: dict[str, float] = field(default_factory=lambda: {"ce": 1.0, "l2": 1e-2})

        def __call__(self, batch):
            logits = self.model(batch[0])
            parts = {"ce": F.cross_entropy(logits, batch[1]), "l2": logits.square().mean()}
            loss = sum(self.weights[name] * part for name, part in parts.items())
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            return {name: part.detach() for name, part in parts.items()}

    model = net()
    return Step(model, torch.optim.SGD(model.parameters(), lr=0.1)), labelled()


def _general_step(batch, model, optimizer, *, criterion, scale=1.0):
    inputs, labels = batch
    loss = criterion(model(inputs), labels) * scale
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


@FAMILY.add("partial")
def partial_of_a_function():
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    return functools.partial(
        _general_step, model=model, optimizer=optimizer, criterion=F.cross_entropy, scale=0.5
    ), labelled()


SMOOTHING, WEIGHTS, TABLE = 0.1, torch.tensor([1.0, 2.0, 0.5]), {"scale": [0.5, 2.0]}


def _weighted(logits, labels):
    return TABLE["scale"][0] * F.cross_entropy(logits, labels, weight=WEIGHTS, label_smoothing=SMOOTHING)


@FAMILY.add("globals")
def constants_and_functions_of_the_module():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)

    def step(batch):
        loss = _weighted(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, labelled()


@FAMILY.add("logging", "python state")
def counters_and_logs_after_the_step():
    class Loop:
        def __init__(self):
            self.model = net()
            self.optimizer = torch.optim.Adam(self.model.parameters())
            self.seen = 0
            self.history = defaultdict(list)

        def step(self, batch):
            loss = F.cross_entropy(self.model(batch[0]), batch[1])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.seen += 1
            self.history["loss"].append(loss.item())
            return loss.detach()

    return Loop().step, labelled()


@FAMILY.add("logging", "metrics")
def metrics_in_tensors():
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    metrics = {
        "loss": torch.zeros(()),
        "correct": torch.zeros((), dtype=torch.long),
        "confusion": torch.zeros(3, 3, dtype=torch.long),
    }

    def step(batch):
        x, y = batch
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
        optimizer.step()
        with torch.no_grad():
            guess = logits.argmax(1)
            metrics["loss"].mul_(0.9).add_(loss, alpha=0.1)
            metrics["correct"] += (guess == y).sum()
            metrics["confusion"] += torch.bincount(3 * y + guess, minlength=9).view(3, 3)
        return loss.detach(), norm

    return step, labelled()


@FAMILY.add("hooks", "forward")
def forward_hooks_that_store_features():
    model = net()
    features = {}
    model[1].register_forward_hook(lambda module, args, out: features.__setitem__("hidden", out))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        logits = model(batch[0])
        loss = F.cross_entropy(logits, batch[1]) + 1e-2 * features["hidden"].abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, labelled()


@FAMILY.add("hooks", "tensor", "module")
def hooks_that_change_activations_and_gradients():
    model = net()
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 0.9,))
    model[1].register_forward_hook(lambda module, args, out: out.clamp(max=2))
    model[2].register_full_backward_hook(
        lambda module, inner, outer: tuple(g.clamp(-0.1, 0.1) for g in inner)
    )
    model[0].weight.register_hook(lambda g: g / (g.norm() + 1e-6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        hidden = model(batch[0])
        hidden.register_hook(lambda g: g * 2)
        loss = F.cross_entropy(hidden, batch[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, labelled()


@FAMILY.add("compile")
def compiled_model():
    model = net()
    fast = torch.compile(model, backend="eager")
    optimizer = torch.optim.Adam(model.parameters())

    def step(batch):
        loss = F.cross_entropy(fast(batch[0]), batch[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, labelled()


def _smooth_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    picked = logits.log_softmax(1).gather(1, labels.unsqueeze(1))
    return -(0.9 * picked.mean() + 0.1 * logits.log_softmax(1).mean())


@FAMILY.add("compile", "jit")
def scripted_loss():
    model = net()
    criterion = torch.jit.script(_smooth_loss)

    optimizer = torch.optim.Adam(model.parameters())

    def step(batch):
        loss = criterion(model(batch[0]), batch[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, labelled()


Sample = namedtuple("Sample", ["words", "label", "extra"])


@FAMILY.add("batch", "nested", "namedtuple")
def nested_batch_of_every_container():
    embed, mix = nn.Embedding(9, 6), net()
    optimizer = torch.optim.Adam([*embed.parameters(), *mix.parameters()])

    def step(batch):
        sample, options = batch
        x = embed(sample.words).mean(1) + sample.extra["bias"][0]
        if options["augment"]:
            x = x * options["scale"]
        loss = F.cross_entropy(mix(x), sample.label, reduction=options["reduction"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), {"logits": [x.detach()]}

    sample = Sample(
        torch.randint(0, 9, (32, 4)), torch.randint(0, 3, (32,)), {"bias": [torch.randn(6), None]}
    )
    return step, (sample, {"augment": True, "scale": 0.5, "reduction": "mean"})


@FAMILY.add("branches", "flags", "context manager")
def branches_on_plain_values_and_own_contexts():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = {"noise": 0.1, "mixed": False, "penalties": ("l1", "l2")}
    penalties = {
        "l1": lambda p: p.abs().sum(),
        "l2": lambda p: p.square().sum(),
        "max": lambda p: p.abs().max(),
    }

    @contextmanager
    def training(module):
        before = module.training
        module.train()
        try:
            yield module
        finally:
            module.train(before)

    def step(batch):
        x, y = batch
        if settings["noise"] > 0:
            x = x + settings["noise"] * torch.randn_like(x)
        with (
            training(model) as active,
            torch.autocast("cpu", torch.bfloat16) if settings["mixed"] else nullcontext(),
        ):
            loss = F.cross_entropy(active(x), y)
        for name in settings["penalties"]:
            loss = loss + 1e-4 * sum(penalties[name](p) for p in model.parameters() if p.ndim > 1)
        try:
            loss.backward()
        finally:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return step, labelled()


@FAMILY.add("custom op")
def operators_of_ones_own():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        loss = F.cross_entropy(swish(model(batch[0])), batch[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, labelled()


@torch.library.custom_op("programs::swish", mutates_args=())
def swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


@swish.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("programs::swish_backward", mutates_args=())
def swish_backward(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    share = torch.sigmoid(x)
    return gradient * share * (1 + x * (1 - share))


@swish_backward.register_fake
def _(gradient, x):
    return torch.empty_like(x)


swish.register_autograd(
    lambda ctx, gradient: swish_backward(gradient, ctx.saved_tensors[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)
