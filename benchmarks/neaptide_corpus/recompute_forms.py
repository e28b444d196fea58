"""Recompute instances of known families, of any size: for tests, benchmarks and tuning without a framework.

Shapes are drawn with the seed, so that no two instances of a family have the same bottleneck. Sizes are those of
32-bit floats.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from neaptide.errors import UsageError
from neaptide_corpus.recompute_tape import SAVES_INPUTS, SAVES_OUTPUT, RecomputeForm, RecomputeTape

_FLOAT: Final = 4


def recompute_form(family: str, nodes: int, seed: int = 0) -> RecomputeForm:
    """An instance of a family with about so many nodes: the shortest of the family that has at least as many.

    Args:
        family: of `FAMILIES`.
        nodes: at least this many.
        seed: of all shapes.

    Raises:
        UsageError: for an unknown family, or no nodes.
    """
    if family not in FAMILIES:
        raise UsageError(f"no family is called {family!r}", next_step=f"choose one of {', '.join(FAMILIES)}")
    if nodes < 1:
        raise UsageError(f"an instance cannot have {nodes} nodes", next_step="ask for at least one")
    build = FAMILIES[family]
    # The number of nodes grows with the number of layers: double until there are enough, then bisect.
    high = 1
    while len(build(high, seed)) < nodes:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if len(build(middle, seed)) < nodes:
            low = middle
        else:
            high = middle
    return build(high, seed)


def transformer(layers: int, seed: int) -> RecomputeForm:
    """A decoder-only language model; with an odd seed its attention matrices are there as tensors."""
    draw = _generator("transformer", seed)
    model = _Attention(RecomputeTape(), draw.choice((64, 128, 192)), draw.choice((2, 4)), seed % 2 == 1)
    tokens, batch, words = draw.choice((128, 256)), draw.choice((1, 2, 4)), draw.choice((512, 1024, 4096))
    x = model.embed("tokens", tokens, batch, words)
    for layer in range(layers):
        x = model.attend(x, x, tokens, tokens, batch, layer)
        x = model.feed_forward(x, tokens, batch, layer)
    return model.tape.finish([model.head(x, tokens, batch, words)])


def encoder_decoder(layers: int, seed: int) -> RecomputeForm:
    """A translation model: what the encoder makes last is read by every decoder layer."""
    draw = _generator("encoder_decoder", seed)
    model = _Attention(RecomputeTape(), draw.choice((64, 128)), draw.choice((2, 4)), explicit=False)
    source, target = draw.choice((128, 256)), draw.choice((64, 128))
    batch, words = draw.choice((1, 2, 4)), draw.choice((512, 1024))
    memory = model.embed("source", source, batch, words)
    for layer in range((layers + 1) // 2):
        memory = model.attend(memory, memory, source, source, batch, layer)
        memory = model.feed_forward(memory, source, batch, layer)
    memory = model.norm(memory, (layers + 1) // 2)
    x = model.embed("target", target, batch, words)
    for layer in range((layers + 1) // 2, layers + 1):
        x = model.attend(x, x, target, target, batch, layer)
        x = model.attend(x, memory, target, source, batch, layer)
        x = model.feed_forward(x, target, batch, layer)
    return model.tape.finish([model.head(x, target, batch, words)])


def residual(layers: int, seed: int) -> RecomputeForm:
    """Bottleneck blocks in four stages, each half as wide and long as the one before, with twice the channels."""
    draw = _generator("residual", seed)
    pixels, width, batch = draw.choice((24, 32, 48)), draw.choice((8, 16, 24)), draw.choice((4, 8, 16))
    model = _Convolutions(RecomputeTape(), batch)
    x = model.unit(None, 3, 4 * width, pixels, 3, "stem")
    stages = min(4, layers)
    channels = 4 * width
    for layer in range(layers):
        stage = layer * stages // layers
        side, wide = max(pixels >> stage, 2), width << stage
        inside = model.unit(x, channels, wide, side, 1, layer)
        inside = model.unit(inside, wide, wide, side, 3, layer)
        inside = model.normed(inside, wide, 4 * wide, side, 1, layer)
        if 4 * wide != channels or model.tape.size(x) != model.tape.size(inside):
            x = model.normed(x, channels, 4 * wide, side, 1, layer)
            channels = 4 * wide
        total = model.tape.op("add", model.tape.size(inside), [inside, x], layer=layer)
        x = model.tape.op("relu", model.tape.size(total), [total], saves=SAVES_OUTPUT, layer=layer)
    return model.tape.finish([model.head(x, channels)])


def skips(layers: int, seed: int) -> RecomputeForm:
    """A U-Net: each level's last result waits until the same level on the way up."""
    draw = _generator("skips", seed)
    pixels, width, batch = draw.choice((32, 48, 64)), draw.choice((8, 16)), draw.choice((2, 4))
    model = _Convolutions(RecomputeTape(), batch)
    levels = min(4, layers)
    depth = [layers // levels + (level < layers % levels) for level in range(levels)]
    x, channels = model.unit(None, 3, width, pixels, 3, "stem"), width
    waiting = []
    for level in range(levels):
        side = pixels >> level
        for _ in range(depth[level]):
            x = model.unit(x, channels, width << level, side, 3, level)
            channels = width << level
        waiting.append((x, channels, side))
        if level < levels - 1:
            pooled = _FLOAT * batch * channels * (side // 2) ** 2
            x = model.tape.op("max_pool", pooled, [x], saves=SAVES_INPUTS, layer=level)
    for level in reversed(range(levels - 1)):
        skip, wide, side = waiting[level]
        grown = _FLOAT * batch * channels * side**2
        up = model.tape.op("upsample", grown, [x], layer=f"up{level}")
        joined = grown + model.tape.size(skip)
        x = model.tape.op("concat", joined, [up, skip], layer=f"up{level}")
        channels += wide
        for _ in range(depth[level]):
            x = model.unit(x, channels, wide, side, 3, f"up{level}")
            channels = wide
    return model.tape.finish([model.head(x, channels)])


def small_ops(layers: int, seed: int) -> RecomputeForm:
    """Many cheap operations and few dear ones, with short branches: what a program in small pieces looks like."""
    draw = _generator("small_ops", seed)
    tape = RecomputeTape()
    size = _FLOAT * draw.randrange(1 << 14, 1 << 16)
    x = tape.op("stem", size, weight=size // 32)
    for layer in range(layers):
        branch = x
        for _ in range(draw.randint(2, 6)):
            saves = draw.choice((SAVES_INPUTS, SAVES_OUTPUT, SAVES_INPUTS))
            x = tape.op("elementwise", size, [x], saves=saves, layer=layer)
        if draw.random() < 0.5:
            other = tape.op("elementwise", size, [branch], saves=SAVES_INPUTS, layer=layer)
            x = tape.op("multiply", size, [x, other], saves=SAVES_INPUTS, layer=layer)
        if draw.random() < 0.3:
            flops = size * draw.uniform(20, 400)
            x = tape.op("mix", size, [x], flops=flops, weight=size // 32, saves=SAVES_INPUTS, layer=layer)
        if draw.random() < 0.6:
            x = tape.op("add", size, [x, branch], layer=layer)
    return tape.finish([tape.op("loss", _FLOAT, [x], saves=SAVES_INPUTS)])


def layered(layers: int, seed: int) -> RecomputeForm:
    """Random layers of three to five operations that read from the layers before, now and then from far back."""
    draw = _generator("layered", seed)
    tape = RecomputeTape()
    rows = [[tape.op("source", _size(draw), weight=_FLOAT * 64, layer=0) for _ in range(3)]]
    for layer in range(1, layers + 1):
        row = []
        for _ in range(draw.randint(3, 5)):
            near = [node for earlier in rows[-2:] for node in earlier]
            reads = draw.sample(near, min(len(near), draw.randint(1, 3)))
            if draw.random() < 0.1:
                reads.append(draw.choice(draw.choice(rows)))
            size = _size(draw)
            flops = size * draw.choice((0.0, 0.0, draw.uniform(20, 400)))
            saves = draw.choice((SAVES_INPUTS, SAVES_OUTPUT, SAVES_INPUTS | SAVES_OUTPUT))
            weight = size // 64 if flops else 0
            row.append(tape.op("op", size, reads, flops=flops, weight=weight, saves=saves, layer=layer))
        rows.append(row)
    return tape.finish([tape.op("loss", _FLOAT, rows[-1], saves=SAVES_INPUTS)])


FAMILIES: Final[Mapping[str, Callable[[int, int], RecomputeForm]]] = MappingProxyType(
    {
        "transformer": transformer,
        "encoder_decoder": encoder_decoder,
        "residual": residual,
        "skips": skips,
        "small_ops": small_ops,
        "layered": layered,
    }
)
"""By name, `(layers, seed) -> instance`; more layers never make fewer nodes."""


class _Attention:
    """Parts of a transformer."""

    def __init__(self, tape: RecomputeTape, width: int, heads: int, explicit: bool) -> None:
        self.tape = tape
        self.width = width
        self.heads = heads
        self.explicit = explicit

    def embed(self, name: str, tokens: int, batch: int, words: int) -> int:
        size = _FLOAT * tokens * batch * self.width
        made = self.tape.op(f"embed_{name}", size, weight=_FLOAT * words * self.width)
        return self.tape.op(f"place_{name}", size, [made])

    def norm(self, x: int, layer: int | str) -> int:
        size, weight = self.tape.size(x), 2 * _FLOAT * self.width
        side = 2 * size // self.width
        return self.tape.op("norm", size, [x], weight=weight, saves=SAVES_INPUTS, side=side, layer=layer)

    def linear(self, name: str, x: int, inside: int, outside: int, layer: int | str) -> int:
        rows = self.tape.size(x) // (_FLOAT * inside)
        weight, size = _FLOAT * inside * outside, _FLOAT * rows * outside
        flops = 2.0 * rows * inside * outside
        return self.tape.op(name, size, [x], flops=flops, weight=weight, saves=SAVES_INPUTS, layer=layer)

    def attend(self, x: int, memory: int, rows: int, columns: int, batch: int, layer: int) -> int:
        """Attention from x to memory, with its projections and the sum with x."""
        width = self.width
        normed = self.norm(x, layer)
        if memory == x:
            parts = [self.linear("project", normed, width, 3 * width, layer)]
        else:
            parts = [
                self.linear("query", normed, width, width, layer),
                self.linear("key_value", memory, width, 2 * width, layer),
            ]
        size = _FLOAT * batch * rows * width
        flops = 2.0 * batch * rows * columns * width
        if self.explicit:
            matrix = _FLOAT * batch * self.heads * rows * columns
            scores = self.tape.op("scores", matrix, parts, flops=flops, saves=SAVES_INPUTS, layer=layer)
            shares = self.tape.op("softmax", matrix, [scores], saves=SAVES_OUTPUT, layer=layer)
            mixed = self.tape.op("mix", size, [shares, *parts], flops=flops, saves=SAVES_INPUTS, layer=layer)
        else:
            side = _FLOAT * batch * self.heads * rows
            both = SAVES_INPUTS | SAVES_OUTPUT
            mixed = self.tape.op(
                "attention", size, parts, flops=2 * flops, saves=both, side=side, layer=layer
            )
        out = self.linear("out", mixed, width, width, layer)
        return self.tape.op("add", size, [x, out], layer=layer)

    def feed_forward(self, x: int, tokens: int, batch: int, layer: int) -> int:
        wide, size = 4 * self.width, _FLOAT * tokens * batch * self.width
        up = self.linear("up", self.norm(x, layer), self.width, wide, layer)
        bent = self.tape.op("gelu", 4 * size, [up], saves=SAVES_INPUTS, layer=layer)
        return self.tape.op("add", size, [x, self.linear("down", bent, wide, self.width, layer)], layer=layer)

    def head(self, x: int, tokens: int, batch: int, words: int) -> int:
        logits = self.linear("logits", self.norm(x, "head"), self.width, words, "head")
        size = _FLOAT * tokens * batch * words
        shares = self.tape.op("log_softmax", size, [logits], saves=SAVES_OUTPUT, layer="head")
        return self.tape.op("loss", _FLOAT, [shares], saves=SAVES_INPUTS, layer="head")


class _Convolutions:
    """Parts of a convolutional network."""

    def __init__(self, tape: RecomputeTape, batch: int) -> None:
        self.tape = tape
        self.batch = batch

    def normed(
        self, x: int | None, inside: int, outside: int, side: int, kernel: int, layer: int | str
    ) -> int:
        """Convolution and normalisation."""
        size = _FLOAT * self.batch * outside * side**2
        weight = _FLOAT * inside * outside * kernel**2
        flops = 2.0 * self.batch * side**2 * inside * outside * kernel**2
        made = self.tape.op(
            "conv",
            size,
            [] if x is None else [x],
            flops=flops,
            weight=weight,
            saves=SAVES_INPUTS,
            layer=layer,
        )
        return self.tape.op(
            "norm",
            size,
            [made],
            weight=2 * _FLOAT * outside,
            saves=SAVES_INPUTS,
            side=8 * outside,
            layer=layer,
        )

    def unit(self, x: int | None, inside: int, outside: int, side: int, kernel: int, layer: int | str) -> int:
        """Convolution, normalisation and rectifier."""
        made = self.normed(x, inside, outside, side, kernel, layer)
        return self.tape.op("relu", self.tape.size(made), [made], saves=SAVES_OUTPUT, layer=layer)

    def head(self, x: int, channels: int) -> int:
        pooled = self.tape.op("mean", _FLOAT * self.batch * channels, [x], layer="head")
        flops, weight = 2.0 * self.batch * channels * 10, _FLOAT * channels * 10
        scores = self.tape.op(
            "classify", _FLOAT * self.batch * 10, [pooled], flops=flops, weight=weight, saves=SAVES_INPUTS
        )
        return self.tape.op("loss", _FLOAT, [scores], saves=SAVES_INPUTS, layer="head")


def _size(draw: random.Random) -> int:
    return _FLOAT * draw.randrange(1 << 10, 1 << 16)


def _generator(family: str, seed: int) -> random.Random:
    return random.Random(f"{family} {seed}")
