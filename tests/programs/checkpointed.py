"""Activation checkpointing by the user's own hand: what runs twice in eager, and what does not."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

from programs.program import Family, descend, trained
from programs.transformers_text import model_of

FAMILY = Family("checkpointed")

plainly = partial(checkpoint, use_reentrant=False)
reentrantly = partial(checkpoint, use_reentrant=True)


class Bottleneck(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.narrow = nn.Conv2d(channels, channels // 2, 1, bias=False)
        self.first = nn.BatchNorm2d(channels // 2)
        self.wide = nn.Conv2d(channels // 2, channels, 3, padding=1, bias=False)
        self.second = nn.BatchNorm2d(channels)

    def forward(self, x):
        out = F.relu(self.first(self.narrow(x)), inplace=True)
        return F.relu(x + self.second(self.wide(out)))


class Counting(nn.Module):
    """Counts its calls, and keeps an average of what it saw, in buffers."""

    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("average", torch.zeros(width))

    def forward(self, x):
        out = torch.tanh(self.layer(x))
        self.calls += 1
        with torch.no_grad():
            self.average.lerp_(out.mean(0), 0.1)
        return out - self.average


def dense(*inner, weight=lambda layer: layer):
    """A block of a linear layer and what comes after it."""
    return lambda: nn.Sequential(weight(nn.Linear(16, 16)), *[make() for make in inner])


def save_products(_context, operation, *_args, **_kwargs):
    saved = operation in {torch.ops.aten.addmm.default, torch.ops.aten.mm.default}
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


def batch_norm(**options):
    return partial(nn.BatchNorm1d, 16, **options)


_SELECTIVE = partial(plainly, context_fn=partial(create_selective_checkpoint_contexts, save_products))
_DROP, _ROWS = partial(nn.Dropout, 0.3), (24, 16)
# What makes a block, how each of three is run, and the shape of the batch.
_BLOCKS = {
    "batch_norm_1d": (dense(batch_norm(), nn.GELU), plainly, _ROWS),
    "batch_norm_1d_reentrant": (dense(nn.Tanh, batch_norm(momentum=0.3)), reentrantly, _ROWS),
    "residual_blocks_with_batch_norm": (partial(Bottleneck, 8), plainly, (4, 8, 10, 10)),
    "instance_norm_that_tracks": (
        lambda: nn.Sequential(
            nn.Conv1d(6, 6, 3, padding=1), nn.InstanceNorm1d(6, track_running_stats=True), nn.ELU()
        ),
        plainly,
        (5, 6, 16),
    ),
    "spectral_norm_of_weights": (dense(nn.LeakyReLU, weight=parametrizations.spectral_norm), plainly, _ROWS),
    "spectral_norm_and_dropout": (
        dense(_DROP, nn.Tanh, weight=parametrizations.spectral_norm),
        reentrantly,
        _ROWS,
    ),
    "weight_norm_of_weights": (dense(nn.Softplus, weight=parametrizations.weight_norm), plainly, _ROWS),
    "averages_in_buffers": (partial(Counting, 10), plainly, (14, 10)),
    "averages_in_buffers_reentrant": (partial(Counting, 10), reentrantly, (14, 10)),
    "dropout_drawn_anew": (dense(_DROP, nn.Tanh), partial(plainly, preserve_rng_state=False), _ROWS),
    "dropout_drawn_anew_reentrant": (
        dense(_DROP, nn.Tanh),
        partial(reentrantly, preserve_rng_state=False),
        _ROWS,
    ),
    "two_dropouts_in_a_block": (dense(_DROP, nn.Tanh, _DROP, nn.GELU), plainly, _ROWS),
    "randomised_relu_run_to_its_end": (dense(nn.RReLU), partial(plainly, early_stop=False), (96, 16)),
    "randomised_relu_reentrant": (dense(nn.RReLU), reentrantly, (96, 16)),
    "products_are_saved": (dense(nn.GELU, nn.Tanh), _SELECTIVE, _ROWS),
    "products_are_saved_in_front_of_batch_norm": (dense(batch_norm(), nn.SiLU), _SELECTIVE, _ROWS),
}


def in_blocks(make, run, shape):
    """A step of three blocks that are run one by one, and a mean of squares."""
    blocks = nn.ModuleList(make() for _ in range(3))
    is_reentrant = "use_reentrant" in run.keywords and run.keywords["use_reentrant"]

    def loss_of(x):
        x = x.detach().requires_grad_() if is_reentrant else x
        for block in blocks:
            x = run(block, x)
        return x.square().mean()

    return trained(loss_of, blocks), torch.randn(shape)


for _name, _block in _BLOCKS.items():
    FAMILY.put(_name, partial(in_blocks, *_block))


@FAMILY.add("nested")
def nested_calls():
    first, second = (nn.ModuleList(dense(nn.GELU, _DROP)() for _ in range(2)) for _ in range(2))

    def pair(blocks, x):
        return plainly(blocks[1], plainly(blocks[0], x))

    def loss_of(x):
        return plainly(pair, second, plainly(pair, first, x)).square().mean()

    return trained(loss_of, first, second), torch.randn(_ROWS)


@FAMILY.add("nested", "batch norm", "reentrant")
def reentrant_inside_of_plain():
    first, second = (dense(batch_norm(), nn.Tanh)() for _ in range(2))

    def both(x):
        return second(reentrantly(first, x))

    return trained(lambda x: plainly(both, x.detach().requires_grad_()).var(), first, second), torch.randn(
        _ROWS
    )


@FAMILY.add("hooks", "reentrant")
def hook_on_a_shared_parameter():
    shared, head = nn.Linear(12, 12), nn.Linear(12, 3)
    shared.weight.register_hook(lambda gradient: gradient / (gradient.norm() + 1.0))

    def loss_of(x):
        x = torch.sin(shared(x))
        x = torch.sin(reentrantly(shared, x))
        x = torch.sin(reentrantly(shared, x))
        return head(x).abs().mean()

    return trained(loss_of, shared, head), torch.randn(30, 12)


@FAMILY.add("shared", "reentrant")
def one_layer_with_and_without():
    layer, head = nn.Linear(16, 16, bias=False), nn.Linear(16, 1)

    def loss_of(x):
        x = torch.tanh(layer(x))
        x = torch.tanh(reentrantly(layer, x))
        return head(torch.tanh(layer(x))).square().mean()

    return trained(loss_of, layer, head), torch.randn(40, 16)


class Attending(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask=None, *, scale=1.0):
        q, k, v = self.mixed(x).chunk(3, dim=-1)
        scores = scale * q @ k.mT
        weights = (scores if mask is None else scores + mask).softmax(-1)
        return self.out(weights @ v), weights.mean()


@FAMILY.add("arguments")
def keywords_in_and_tuples_out():
    layers = nn.ModuleList(Attending(8) for _ in range(3))

    def loss_of(batch):
        x, penalty = batch["x"], 0.0
        for layer in layers:
            change, spread = plainly(layer, x, mask=batch["mask"], scale=0.35)
            x, penalty = x + change, penalty + spread
        return x.square().mean() + 0.1 * penalty

    mask = torch.zeros(10, 10).masked_fill(torch.ones(10, 10).triu(1) > 0, -9.0)
    return trained(loss_of, layers), {"x": torch.randn(3, 10, 8), "mask": mask}


@FAMILY.add("arguments", "reentrant")
def inputs_without_gradients():
    first, second = nn.Linear(12, 12), nn.Linear(12, 2)

    def loss_of(batch):
        hidden = torch.relu(reentrantly(first, batch["x"]))
        return F.cross_entropy(second(hidden), batch["y"])

    return trained(loss_of, first, second), {"x": torch.randn(18, 12), "y": torch.randint(2, (18,))}


@FAMILY.add("early stop", "buffers")
def run_to_the_end_or_not():
    counting = nn.ModuleList(Counting(10) for _ in range(2))

    def last(x):
        out = counting[1].layer(x).sigmoid()
        counting[1].calls.add_(1)  # after the last tensor that the backward asks for
        return out

    def loss_of(x):
        with set_checkpoint_early_stop(False):
            x = plainly(counting[0], x)
        return plainly(last, x).square().mean()

    return trained(loss_of, counting), torch.randn(14, 10)


@FAMILY.add("gan", "batch norm")
def adversaries():
    maker = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
    critic = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    of_maker, of_critic = (torch.optim.Adam(part.parameters(), 2e-3) for part in (maker, critic))

    def step(batch):
        made = plainly(maker, batch["noise"])
        loss = F.softplus(-critic(batch["x"])).mean() + F.softplus(plainly(critic, made.detach())).mean()
        descend(of_critic, loss)
        descend(of_maker, F.softplus(-plainly(critic, made)).mean())
        return loss.detach()

    return step, {"x": torch.randn(12, 8), "noise": torch.randn(12, 6)}


@FAMILY.add("recurrent")
def cells_one_by_one():
    cell, head = nn.GRUCell(8, 12), nn.Linear(12, 8)

    def loss_of(x):
        state, loss = x.new_zeros(x.shape[0], 12), 0.0
        for at in range(x.shape[1] - 1):
            state = plainly(cell, x[:, at], state)
            loss = loss + F.mse_loss(head(state), x[:, at + 1])
        return loss

    return trained(loss_of, cell, head), torch.randn(5, 6, 8)


@FAMILY.add("recurrent", "reentrant")
def lstm_cells_reentrant():
    cell, head = nn.LSTMCell(8, 10), nn.Linear(10, 1)

    def advance(x, state, memory):
        return cell(x, (state, memory))

    def loss_of(x):
        x = x.detach().requires_grad_()
        state = memory = x.new_zeros(x.shape[0], 10)
        for at in range(x.shape[1]):
            state, memory = reentrantly(advance, x[:, at], state, memory)
        return head(state).square().mean()

    return trained(loss_of, cell, head), torch.randn(5, 4, 8)


@FAMILY.add("in place")
def results_overwritten_by_the_caller():
    blocks = nn.ModuleList(dense(nn.Tanh)() for _ in range(3))

    def loss_of(x):
        for block in blocks:
            x = plainly(block, x)
            x.mul_(1.25)
        return x.square().mean()

    return trained(loss_of, blocks), torch.randn(_ROWS)


_SIZES = {"vocab_size": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "hidden_size": 16}
_SIZES |= {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "ffn_dim": 24}
_LAYERS = {
    "llama_layers_reentrant": ("Llama", True, {"num_key_value_heads": 1}),
    "opt_layers": ("OPT", False, {"word_embed_proj_dim": 16, "dropout": 0.2}),
    "gpt_neox_layers_reentrant": ("GPTNeoX", True, {"hidden_dropout": 0.1}),
}


def small_transformer(kind, use_reentrant, sizes):
    """A step of a model of transformers whose layers are checkpointed by its own switch."""
    model = model_of(f"{kind}:ForCausalLM", _SIZES | sizes)
    model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    ids = torch.randint(3, 32, (2, 10))
    return trained(lambda ids: model(input_ids=ids, labels=ids, use_cache=False).loss, model), ids


for _name, _options in _LAYERS.items():
    FAMILY.put(_name, partial(small_transformer, *_options), "transformers")
