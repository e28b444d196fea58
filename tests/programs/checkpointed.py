"""Activation checkpointing by the user's own hand: what runs twice in eager, and what does not."""

from __future__ import annotations

import functools

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

from programs.program import Family, descend, descending

FAMILY = Family("checkpointed")

plainly = functools.partial(checkpoint, use_reentrant=False)
reentrantly = functools.partial(checkpoint, use_reentrant=True)


def in_blocks(blocks, run, *, lr=0.05, leaf=False, between=lambda x: x):
    """A step of blocks that are run one by one, and a mean of squares."""
    optimizer = torch.optim.SGD(blocks.parameters(), lr=lr, momentum=0.9)

    def loss_of(x):
        if leaf:
            x = x.detach().requires_grad_()
        for block in blocks:
            x = between(run(block, x))
        return x.square().mean()

    return descending(optimizer, loss_of)


def dense(*inner, width=16, count=3):
    return nn.ModuleList(
        nn.Sequential(nn.Linear(width, width), *[make() for make in inner]) for _ in range(count)
    )


@FAMILY.add("batch norm")
def batch_norm_1d():
    return in_blocks(dense(lambda: nn.BatchNorm1d(16), nn.GELU), plainly), torch.randn(24, 16)


@FAMILY.add("batch norm", "reentrant")
def batch_norm_1d_reentrant():
    blocks = dense(nn.Tanh, lambda: nn.BatchNorm1d(16, momentum=0.3))
    return in_blocks(blocks, reentrantly, leaf=True), torch.randn(24, 16)


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


@FAMILY.add("batch norm", "convolution")
def residual_blocks_with_batch_norm():
    blocks = nn.ModuleList(Bottleneck(8) for _ in range(3))
    return in_blocks(blocks, plainly), torch.randn(4, 8, 10, 10)


@FAMILY.add("instance norm")
def instance_norm_that_tracks():
    blocks = nn.ModuleList(
        nn.Sequential(nn.Conv1d(6, 6, 3, padding=1), nn.InstanceNorm1d(6, track_running_stats=True), nn.ELU())
        for _ in range(3)
    )
    return in_blocks(blocks, plainly), torch.randn(5, 6, 16)


@FAMILY.add("spectral norm")
def spectral_norm_of_weights():
    blocks = nn.ModuleList(
        nn.Sequential(parametrizations.spectral_norm(nn.Linear(12, 12)), nn.LeakyReLU(0.2)) for _ in range(3)
    )
    return in_blocks(blocks, plainly), torch.randn(16, 12)


@FAMILY.add("spectral norm", "dropout")
def spectral_norm_and_dropout():
    blocks = nn.ModuleList(
        nn.Sequential(parametrizations.spectral_norm(nn.Linear(12, 12)), nn.Dropout(0.2), nn.Tanh())
        for _ in range(3)
    )
    return in_blocks(blocks, reentrantly, leaf=True), torch.randn(16, 12)


@FAMILY.add("weight norm")
def weight_norm_of_weights():
    blocks = nn.ModuleList(
        nn.Sequential(parametrizations.weight_norm(nn.Linear(12, 12)), nn.Softplus()) for _ in range(3)
    )
    return in_blocks(blocks, plainly), torch.randn(16, 12)


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


@FAMILY.add("buffers")
def averages_in_buffers():
    return in_blocks(nn.ModuleList(Counting(10) for _ in range(3)), plainly), torch.randn(14, 10)


@FAMILY.add("buffers", "reentrant")
def averages_in_buffers_reentrant():
    blocks = nn.ModuleList(Counting(10) for _ in range(3))
    return in_blocks(blocks, reentrantly, leaf=True), torch.randn(14, 10)


@FAMILY.add("dropout")
def dropout_drawn_anew():
    run = functools.partial(plainly, preserve_rng_state=False)
    return in_blocks(dense(lambda: nn.Dropout(0.3), nn.Tanh), run), torch.randn(12, 16)


@FAMILY.add("dropout", "reentrant")
def dropout_drawn_anew_reentrant():
    run = functools.partial(reentrantly, preserve_rng_state=False)
    return in_blocks(dense(lambda: nn.Dropout(0.3), nn.Tanh), run, leaf=True), torch.randn(12, 16)


@FAMILY.add("dropout")
def two_dropouts_in_a_block():
    blocks = dense(lambda: nn.Dropout(0.1), nn.Tanh, lambda: nn.Dropout(0.4), nn.GELU)
    return in_blocks(blocks, plainly), torch.randn(12, 16)


@FAMILY.add("random")
def randomised_relu_run_to_its_end():
    run = functools.partial(plainly, early_stop=False)
    return in_blocks(dense(nn.RReLU, count=4), run), torch.randn(96, 16)


@FAMILY.add("random", "reentrant")
def randomised_relu_reentrant():
    return in_blocks(dense(nn.RReLU, count=4), reentrantly, leaf=True), torch.randn(96, 16)


@FAMILY.add("nested")
def nested_calls():
    blocks = dense(nn.GELU, lambda: nn.Dropout(0.2), count=4)

    def pair(first, second, x):
        return plainly(second, plainly(first, x))

    optimizer = torch.optim.Adam(blocks.parameters(), lr=1e-2)

    def loss_of(x):
        x = plainly(pair, blocks[0], blocks[1], x)
        x = plainly(pair, blocks[2], blocks[3], x)
        return x.square().mean()

    return descending(optimizer, loss_of), torch.randn(20, 16)


@FAMILY.add("nested", "batch norm", "reentrant")
def reentrant_inside_of_plain():
    blocks = dense(lambda: nn.BatchNorm1d(16), nn.Tanh, count=2)
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1)

    def both(x):
        return blocks[1](reentrantly(blocks[0], x))

    return lambda x: descend(optimizer, plainly(both, x.detach().requires_grad_()).var()), torch.randn(20, 16)


def save_products(_context, operation, *_args, **_kwargs):
    saved = operation in {torch.ops.aten.addmm.default, torch.ops.aten.mm.default}
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


@FAMILY.add("selective")
def products_are_saved():
    run = functools.partial(
        plainly, context_fn=functools.partial(create_selective_checkpoint_contexts, save_products)
    )
    return in_blocks(dense(nn.GELU, nn.Tanh), run), torch.randn(24, 16)


@FAMILY.add("selective", "batch norm")
def products_are_saved_in_front_of_batch_norm():
    run = functools.partial(
        plainly, context_fn=functools.partial(create_selective_checkpoint_contexts, save_products)
    )
    return in_blocks(dense(lambda: nn.BatchNorm1d(16), nn.SiLU), run), torch.randn(24, 16)


@FAMILY.add("hooks", "reentrant")
def hook_on_a_shared_parameter():
    shared, head = nn.Linear(12, 12), nn.Linear(12, 3)
    shared.weight.register_hook(lambda gradient: gradient / (gradient.norm() + 1.0))
    optimizer = torch.optim.SGD([*shared.parameters(), *head.parameters()], lr=0.3)

    def loss_of(x):
        x = torch.sin(shared(x))
        x = torch.sin(reentrantly(shared, x))
        x = torch.sin(reentrantly(shared, x))
        return head(x).abs().mean()

    return descending(optimizer, loss_of), torch.randn(30, 12)


@FAMILY.add("shared", "reentrant")
def one_layer_with_and_without():
    layer, head = nn.Linear(16, 16, bias=False), nn.Linear(16, 1)
    optimizer = torch.optim.AdamW([*layer.parameters(), *head.parameters()], lr=1e-2)

    def loss_of(x):
        x = torch.tanh(layer(x))
        x = torch.tanh(reentrantly(layer, x))
        x = torch.tanh(layer(x))
        return head(x).square().mean()

    return descending(optimizer, loss_of), torch.randn(40, 16)


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
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-3)

    def loss_of(batch):
        x, penalty = batch["x"], 0.0
        for layer in layers:
            change, spread = plainly(layer, x, mask=batch["mask"], scale=0.35)
            x, penalty = x + change, penalty + spread
        return x.square().mean() + 0.1 * penalty

    return descending(optimizer, loss_of), {
        "x": torch.randn(3, 10, 8),
        "mask": torch.zeros(10, 10).masked_fill(torch.ones(10, 10).triu(1) > 0, -9.0),
    }


@FAMILY.add("arguments", "reentrant")
def inputs_without_gradients():
    first, second = nn.Linear(12, 12), nn.Linear(12, 2)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.2)

    def loss_of(batch):
        hidden = torch.relu(reentrantly(first, batch["x"]))
        return F.cross_entropy(second(hidden), batch["y"])

    return descending(optimizer, loss_of), {"x": torch.randn(18, 12), "y": torch.randint(2, (18,))}


@FAMILY.add("early stop", "buffers")
def run_to_the_end_or_not():
    counting = nn.ModuleList(Counting(10) for _ in range(2))
    optimizer = torch.optim.SGD(counting.parameters(), lr=0.1)

    def last(x):
        out = counting[1].layer(x).sigmoid()
        counting[1].calls.add_(1)  # behind the last tensor that the backward asks for
        return out

    def loss_of(x):
        with set_checkpoint_early_stop(False):
            x = plainly(counting[0], x)
        x = plainly(last, x)
        return x.square().mean()

    return descending(optimizer, loss_of), torch.randn(14, 10)


@FAMILY.add("gan", "batch norm")
def adversaries():
    maker = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
    critic = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    of_maker = torch.optim.Adam(maker.parameters(), lr=2e-3, betas=(0.5, 0.9))
    of_critic = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.9))

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
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)

    def loss_of(x):
        state, loss = x.new_zeros(x.shape[0], 12), 0.0
        for at in range(x.shape[1] - 1):
            state = plainly(cell, x[:, at], state)
            loss = loss + F.mse_loss(head(state), x[:, at + 1])
        return loss

    return descending(optimizer, loss_of), torch.randn(5, 6, 8)


@FAMILY.add("recurrent", "reentrant")
def lstm_cells_reentrant():
    cell, head = nn.LSTMCell(8, 10), nn.Linear(10, 1)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)

    def advance(x, state, memory):
        return cell(x, (state, memory))

    def loss_of(x):
        x = x.detach().requires_grad_()
        state = memory = x.new_zeros(x.shape[0], 10)
        for at in range(x.shape[1]):
            state, memory = reentrantly(advance, x[:, at], state, memory)
        return head(state).square().mean()

    return descending(optimizer, loss_of), torch.randn(5, 4, 8)


@FAMILY.add("in place")
def results_overwritten_by_the_caller():
    blocks = dense(nn.Tanh)
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1)

    def loss_of(x):
        for block in blocks:
            x = plainly(block, x)
            x.mul_(1.25)
        return x.square().mean()

    return descending(optimizer, loss_of), torch.randn(24, 16)


def small_transformer(kind, *, use_reentrant, **sizes):
    """A step of a model of transformers whose layers are checkpointed by its own switch."""
    import transformers

    sizes = {"vocab_size": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2} | sizes
    model = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**sizes))
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    return descending(
        optimizer, lambda ids: model(input_ids=ids, labels=ids, use_cache=False).loss
    ), torch.randint(3, 32, (2, 10))


_LAYERS = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}


@FAMILY.add("transformers", "reentrant")
def llama_layers_reentrant():
    return small_transformer("Llama", use_reentrant=True, num_key_value_heads=1, **_LAYERS)


@FAMILY.add("transformers", "dropout")
def opt_layers():
    sizes = {"hidden_size": 16, "ffn_dim": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    return small_transformer("OPT", use_reentrant=False, word_embed_proj_dim=16, dropout=0.2, **sizes)


@FAMILY.add("transformers", "dropout", "reentrant")
def gpt_neox_layers_reentrant():
    return small_transformer("GPTNeoX", use_reentrant=True, hidden_dropout=0.1, **_LAYERS)
