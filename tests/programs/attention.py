"""Attention in the forms in which it is written: torch's own modules, and by hand with masks, positions and memories."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family, descend, descending, trained

FAMILY = Family("attention")


WIDTH, HEADS, LENGTH, VOCABULARY = 12, 3, 16, 17


def tokens(count=4, length=LENGTH):
    return torch.randint(0, VOCABULARY, (count, length))


def language_model(model, optimizer):
    def loss_of(ids):
        logits = model(ids[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    return descending(optimizer, loss_of, clears_first=True)


def split(x, heads=HEADS):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join(x):
    return x.transpose(1, 2).flatten(2)


class Decoder(nn.Module):
    """Blocks of any attention between an embedding and a head."""

    def __init__(self, *attentions, position=True, tied=False):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02) if position else None
        self.attentions = nn.ModuleList(attentions)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in attentions)
        self.feeds = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 24), nn.GELU(), nn.Linear(24, WIDTH))
            for _ in attentions
        )
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids)
        if self.position is not None:
            x = x + self.position[: ids.shape[1]]
        for norm, attention, feed in zip(self.norms, self.attentions, self.feeds, strict=True):
            x = x + attention(norm(x))
            x = x + feed(x)
        return self.head(x)


class Causal(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.qkv, self.out, self.dropout = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), dropout

    def forward(self, x):
        q, k, v = (split(part) for part in self.qkv(x).chunk(3, -1))
        return self.out(join(F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout)))


@FAMILY.add("mask", "padding")
def padded_encoder_classifier():
    embed = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
    attention = nn.MultiheadAttention(WIDTH, HEADS, dropout=0.1, batch_first=True)
    head = nn.Linear(WIDTH, 2)

    def loss_of(batch):
        ids, labels = batch["input_ids"], batch["labels"]
        empty = ids == 0
        x = embed(ids)
        x = x + attention(x, x, x, key_padding_mask=empty, need_weights=False)[0]
        pooled = x.masked_fill(empty.unsqueeze(-1), 0).sum(1) / (~empty).sum(1, keepdim=True)
        return F.cross_entropy(head(pooled), labels)

    ids = tokens(6).clamp(min=1)
    ids[:, 11:] = 0
    return trained(loss_of, nn.ModuleList([embed, attention, head])), {
        "input_ids": ids,
        "labels": torch.randint(0, 2, (6,)),
    }


@FAMILY.add("nn.MultiheadAttention", "weights")
def multihead_with_averaged_weights():
    first = nn.MultiheadAttention(WIDTH, HEADS, add_bias_kv=True, add_zero_attn=True)
    second = nn.MultiheadAttention(WIDTH, 2, kdim=8, vdim=10)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)

    def step(query, *, entropy_weight=0.01):
        x, key, value = query
        x, weights = first(x, x, x)
        out, _ = second(x, key, value, average_attn_weights=False)
        entropy = -(weights * (weights + 1e-9).log()).sum(-1).mean()
        return descend(optimizer, out.square().mean() - entropy_weight * entropy, clears_first=True)

    return step, (torch.randn(9, 4, WIDTH), torch.randn(7, 4, 8), torch.randn(7, 4, 10))


@FAMILY.add("nn.TransformerEncoder")
def torch_transformer_encoder():
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 24, dropout=0.1, batch_first=True, norm_first=True, activation="gelu"
    )
    model = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(WIDTH, 3))

    def loss_of(batch):
        x, y = batch
        return F.cross_entropy(model(x).mean(1), y)

    return trained(loss_of, model), (torch.randn(5, 14, WIDTH), torch.randint(0, 3, (5,)))


@FAMILY.add("nn.TransformerDecoder", "teacher forcing")
def torch_transformer_decoder():
    layer = nn.TransformerDecoderLayer(WIDTH, HEADS, 24, dropout=0.0, batch_first=True)
    decoder, embed, head = (
        nn.TransformerDecoder(layer, 2),
        nn.Embedding(VOCABULARY, WIDTH),
        nn.Linear(WIDTH, VOCABULARY),
    )
    mask = nn.Transformer.generate_square_subsequent_mask(LENGTH - 1)

    def loss_of(batch):
        memory, ids = batch
        out = decoder(embed(ids[:, :-1]), memory, tgt_mask=mask, tgt_is_causal=True)
        return F.cross_entropy(head(out).transpose(1, 2), ids[:, 1:])

    return trained(loss_of, decoder, embed, head), (torch.randn(4, 6, WIDTH), tokens())


class RotaryComplex(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.register_buffer(
            "phases",
            torch.polar(
                torch.ones(LENGTH, 2), torch.outer(torch.arange(LENGTH).float(), torch.tensor([1.0, 0.1]))
            ),
        )

    def forward(self, x):
        q, k, v = (split(part) for part in self.qkv(x).chunk(3, -1))

        def turned(t):
            turned = torch.view_as_complex(t.float().unflatten(-1, (-1, 2))) * self.phases[: t.shape[2]]
            return torch.view_as_real(turned).flatten(-2)

        return join(F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True))


@FAMILY.add("rotary", "complex")
def rotary_by_complex_numbers():
    model = Decoder(RotaryComplex(), position=False)
    return language_model(model, torch.optim.AdamW(model.parameters())), tokens()


class Linear(nn.Module):
    """Linear attention by a cumulative sum of outer products."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x):
        q, k, v = (split(part) for part in self.qkv(x).chunk(3, -1))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = torch.einsum("bhnd,bhne->bhnde", k, v).cumsum(2)
        scale = torch.einsum("bhnd,bhnd->bhn", q, k.cumsum(2))
        return join(torch.einsum("bhnd,bhnde->bhne", q, state) / scale.unsqueeze(-1))


@FAMILY.add("linear attention", "cumsum")
def linear_attention():
    model = Decoder(Linear(), Linear())
    return language_model(model, torch.optim.Adam(model.parameters())), tokens()


class Windowed(nn.Module):
    """A sliding window of keys by `unfold`."""

    def __init__(self, window=4):
        super().__init__()
        self.qkv, self.window = nn.Linear(WIDTH, 3 * WIDTH), window

    def forward(self, x):
        q, k, v = (split(part) for part in self.qkv(x).chunk(3, -1))
        k, v = (F.pad(t, (0, 0, self.window - 1, 0)).unfold(2, self.window, 1) for t in (k, v))
        scores = (q.unsqueeze(-1) * k).sum(-2) * q.shape[-1] ** -0.5
        return join((scores.softmax(-1).unsqueeze(-2) * v).sum(-1))


@FAMILY.add("window", "unfold", "view")
def sliding_window():
    model = Decoder(Windowed(), Windowed())
    return language_model(model, torch.optim.AdamW(model.parameters())), tokens()


class Experts(nn.Module):
    """Every token through every expert, weighted by its two best gates."""

    def __init__(self, count=4):
        super().__init__()
        self.gate = nn.Linear(WIDTH, count, bias=False)
        self.up, self.down = (
            nn.Parameter(torch.randn(count, WIDTH, 16) * 0.2),
            nn.Parameter(torch.randn(count, 16, WIDTH) * 0.2),
        )

    def forward(self, x):
        best, which = self.gate(x).softmax(-1).topk(2, -1)
        weights = torch.zeros(*x.shape[:-1], len(self.up)).scatter(
            -1, which, best / best.sum(-1, keepdim=True)
        )
        hidden = torch.einsum("bnd,edh->benh", x, self.up).relu()
        return torch.einsum("benh,ehd,bne->bnd", hidden, self.down, weights)


@FAMILY.add("mixture of experts", "topk", "scatter")
def dense_mixture_of_experts():
    model = Decoder(Causal(), Experts())
    return language_model(model, torch.optim.AdamW(model.parameters())), tokens()


@FAMILY.add("kv cache", "view", "copy")
def two_passes_with_a_key_value_cache():
    attention, embed, head = Causal(), nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def loss_of(ids):
        keys = torch.empty(len(ids), HEADS, LENGTH, WIDTH // HEADS)
        values = torch.empty_like(keys)
        total, place = 0.0, 0
        for part in ids.split(8, 1):
            q, k, v = (split(t) for t in attention.qkv(embed(part)).chunk(3, -1))
            end = place + part.shape[1]
            with torch.no_grad():
                keys[:, :, place:end], values[:, :, place:end] = k, v
            old_k, old_v = keys[:, :, :place].clone(), values[:, :, :place].clone()
            x = F.scaled_dot_product_attention(q, torch.cat([old_k, k], 2), torch.cat([old_v, v], 2))
            total = total + F.cross_entropy(head(attention.out(join(x))).mT, part)
            place = end
        return total

    return trained(loss_of, attention, embed, head), tokens()
