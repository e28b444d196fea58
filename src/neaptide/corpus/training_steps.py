"""Whole training steps made by hand, with the shapes of a transformer and of a residual conv net.

They have what real captures have: saved activations, views, in-place activations, batch norm with running
statistics, dropout masks, and optimizer updates behind the backward. Ops are named `toy.*` and have rows of their
own, so that nothing but numbers differs from a captured program. Seconds are those of a roofline of
`FLOPS_PER_S` and `BYTES_PER_S`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.ir.builder import GraphBuilder, ValueId
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Source
from neaptide.ir.registry import OpRegistry, OpSpec, Replay, Trait
from neaptide.ir.values import Kind

FLOPS_PER_S: Final = 1e13
BYTES_PER_S: Final = 1e12


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """A made-up training step.

    Attributes:
        graph: forward, backward and optimizer in program order.
        registry: the rows of its ops.
        seconds: of one execution of each node.
    """

    graph: Graph
    registry: OpRegistry
    seconds: tuple[float, ...]


def toy_registry() -> OpRegistry:
    """Rows of the ops of the made-up steps and of `random_graphs`."""
    dear = {
        "matmul": Trait.CONTRACTION,
        "conv": Trait.CONVOLUTION,
        "conv_backward": Trait.CONVOLUTION,
        "attention": Trait.ATTENTION,
        "attention_backward": Trait.ATTENTION,
    }
    pure = (
        *("layer_norm", "layer_norm_backward", "batch_norm_backward", "batch_norm_no_stats"),
        *("loss", "loss_backward", "max_pool", "max_pool_backward"),
        *("gelu", "gelu_backward", "relu_backward", "add", "dropout_backward", "sqrt", "norm", "clip_factor"),
        *("mix", "split", "expand_like"),
    )
    return OpRegistry(
        [
            *(OpSpec(f"toy.{name}", traits=frozenset({trait})) for name, trait in dear.items()),
            *(OpSpec(f"toy.{name}") for name in pure),
            *(OpSpec(f"toy.{name}", traits=frozenset({Trait.VIEW})) for name in ("view", "slice")),
            OpSpec("toy.dropout", rng=True),
            *(
                OpSpec(f"toy.{name}_", writes=(0,))
                for name in ("relu", "add", "mul", "lerp", "addcmul", "addcdiv", "update")
            ),
            OpSpec(
                "toy.batch_norm",
                writes=(2, 3),
                replay=Replay("toy.batch_norm_no_stats", (0, 1), (0, 1, 2), ("cpu", "cuda")),
            ),
        ]
    )


def transformer_step(
    *,
    layers: int = 4,
    tokens: int = 256,
    width: int = 128,
    vocab: int = 1024,
    dropout: bool = False,
    clip: bool = False,
    optimizer: str = "adamw",
) -> TrainingStep:
    """A decoder of pre-norm blocks; `clip` puts a global gradient norm in front of the updates."""
    step = _Step("transformer")
    x = step.tensor("x", (tokens, width), Kind.INPUT)
    blocks = []
    for layer in range(layers):
        block = _Block(step, f"h{layer}", tokens, width, dropout=dropout)
        x = block.forward(x)
        blocks.append(block)
    head = step.parameter("head", (width, vocab))
    logits = step.matmul("logits", x, head, tokens, width, vocab)
    loss, probabilities = step.op(
        "loss", logits, outputs=["loss: f32[1]", f"probabilities: f32[{tokens}, {vocab}]"]
    )
    step.phase = "backward"
    (grad,) = step.op("loss_backward", probabilities, outputs=[f"d_logits: f32[{tokens}, {vocab}]"])
    step.gradient(head, step.matmul("d_head", x, grad, width, tokens, vocab))
    grad = step.matmul("d_x", grad, head, tokens, vocab, width)
    for block in reversed(blocks):
        grad = block.backward(grad)
    step.optimize(optimizer, clip=clip)
    step.builder.output(loss)
    return step.finish()


def conv_step(
    *, blocks: int = 4, batch: int = 8, channels: int = 16, pixels: int = 256, optimizer: str = "sgd"
) -> TrainingStep:
    """Residual blocks of two convolutions with batch norm and in-place activations; one fat classifier."""
    step = _Step("conv")
    x = step.tensor("x", (batch, channels, pixels), Kind.INPUT)
    tape: list[_ConvBlock] = []
    for index in range(blocks):
        block = _ConvBlock(step, f"b{index}", batch, channels, pixels)
        x = block.forward(x)
        tape.append(block)
    weight = step.parameter("classifier", (channels * pixels, 512))
    features = channels * pixels
    (flat,) = step.op("view", x, outputs=[f"flat: f32[{batch}, {features}] @{step.name(x)}"])
    logits = step.matmul("logits", flat, weight, batch, features, 512)
    loss, probabilities = step.op(
        "loss", logits, outputs=["loss: f32[1]", f"probabilities: f32[{batch}, 512]"]
    )
    step.phase = "backward"
    (grad,) = step.op("loss_backward", probabilities, outputs=[f"d_logits: f32[{batch}, 512]"])
    step.gradient(weight, step.matmul("d_classifier", flat, grad, features, batch, 512))
    wide = step.matmul("d_flat", grad, weight, batch, 512, features)
    (grad,) = step.op("view", wide, outputs=[f"d_x: f32[{batch}, {channels}, {pixels}] @{step.name(wide)}"])
    for block in reversed(tape):
        grad = block.backward(grad)
    step.optimize(optimizer, clip=False)
    step.builder.output(loss)
    return step.finish()


def pooled_step(
    *, stages: int = 4, batch: int = 8, channels: int = 16, pixels: int = 256, optimizer: str = "sgd"
) -> TrainingStep:
    """A plain chain of stages: convolution, batch norm, activation in place, pooling at stride one; a classifier."""
    step = _Step("pooled")
    x = step.tensor("x", (batch, channels, pixels), Kind.INPUT)
    tape: list[_PooledStage] = []
    for index in range(stages):
        stage = _PooledStage(step, f"s{index}", batch, channels, pixels)
        x = stage.forward(x)
        tape.append(stage)
    features = channels * pixels
    weight = step.parameter("classifier", (features, 64))
    (flat,) = step.op("view", x, outputs=[f"flat: f32[{batch}, {features}] @{step.name(x)}"])
    logits = step.matmul("logits", flat, weight, batch, features, 64)
    loss, probabilities = step.op(
        "loss", logits, outputs=["loss: f32[1]", f"probabilities: f32[{batch}, 64]"]
    )
    step.phase = "backward"
    (grad,) = step.op("loss_backward", probabilities, outputs=[f"d_logits: f32[{batch}, 64]"])
    step.gradient(weight, step.matmul("d_classifier", flat, grad, features, batch, 64))
    wide = step.matmul("d_flat", grad, weight, batch, 64, features)
    (grad,) = step.op("view", wide, outputs=[f"d_x: f32[{batch}, {channels}, {pixels}] @{step.name(wide)}"])
    for stage in reversed(tape):
        grad = stage.backward(grad)
    step.optimize(optimizer, clip=False)
    step.builder.output(loss)
    return step.finish()


class _Step:
    """A builder that knows phases, gradients and seconds."""

    def __init__(self, name: str) -> None:
        self.registry = toy_registry()
        self.builder = GraphBuilder(name, self.registry)
        self.phase = "forward"
        self.seconds: list[float] = []
        self.gradients: list[tuple[ValueId, ValueId]] = []

    def name(self, value: ValueId) -> str:
        return self.builder.values[value].name

    def tensor(self, name: str, shape: Sequence[int], kind: Kind) -> ValueId:
        return self.builder.input(name, shape, kind=kind)

    def parameter(self, name: str, shape: Sequence[int]) -> ValueId:
        return self.tensor(name, shape, Kind.PARAMETER)

    def gradient(self, parameter: ValueId, grad: ValueId) -> None:
        self.gradients.append((parameter, grad))

    def op(
        self,
        name: str,
        *operands: ValueId | float,
        outputs: Sequence[str],
        flops: float = 0.0,
        host: bool = False,
    ) -> tuple[ValueId, ...]:
        made = self.builder.node(
            f"toy.{name}", *operands, outputs=outputs, host=host, source=Source(phase=self.phase)
        )
        moved = 0
        if name != "view":
            for value in (*operands, *made):
                if isinstance(value, ValueId) and self.builder.values[value].storage is not None:
                    moved += self.builder.values[value].nbytes.constant_value()
        self.seconds.append(max(flops / FLOPS_PER_S, moved / BYTES_PER_S))
        return made

    def matmul(self, name: str, a: ValueId, b: ValueId, rows: int, inner: int, columns: int) -> ValueId:
        (made,) = self.op(
            "matmul", a, b, outputs=[f"{name}: f32[{rows}, {columns}]"], flops=2.0 * rows * inner * columns
        )
        return made

    def in_place(self, name: str, target: ValueId, *others: ValueId | float) -> ValueId:
        value = self.builder.values[target]
        shape = ", ".join(str(extent) for extent in value.shape)
        (made,) = self.op(name, target, *others, outputs=[f"{value.name}_{name}: f32[{shape}] @{value.name}"])
        return made

    def like(self, name: str, value: ValueId) -> str:
        shape = ", ".join(str(extent) for extent in self.builder.values[value].shape)
        return f"{name}: f32[{shape}]"

    def optimize(self, optimizer: str, *, clip: bool) -> None:
        self.phase = "optimizer"
        if clip:
            norms = [self.op("norm", grad, outputs=["norm: f32[1]"])[0] for _, grad in self.gradients]
            (factor,) = self.op("clip_factor", *norms, outputs=["factor: f32[1]"])
            self.gradients = [(p, self.in_place("mul_", g, factor)) for p, g in self.gradients]
        for parameter, grad in self.gradients:
            shape = tuple(e.constant_value() for e in self.builder.values[parameter].shape)
            name = self.name(parameter)
            momentum = self.tensor(f"{name}_m", shape, Kind.OPTIMIZER_STATE)
            if optimizer == "sgd":
                momentum = self.in_place("mul_", momentum, 0.9)
                momentum = self.in_place("add_", momentum, grad)
                self.in_place("add_", parameter, momentum)
                continue
            square = self.tensor(f"{name}_v", shape, Kind.OPTIMIZER_STATE)
            count = self.tensor(f"{name}_t", (1,), Kind.OPTIMIZER_STATE)
            count = self.in_place("add_", count, 1.0)
            decayed = self.in_place("mul_", parameter, 0.99)
            momentum = self.in_place("lerp_", momentum, grad)
            square = self.in_place("mul_", square, 0.999)
            square = self.in_place("addcmul_", square, grad)
            (root,) = self.op("sqrt", square, outputs=[self.like(f"{name}_root", square)])
            root = self.in_place("add_", root, 1e-8)
            self.in_place("addcdiv_", decayed, momentum, root, count)

    def finish(self) -> TrainingStep:
        return TrainingStep(self.builder.finish(), self.registry, tuple(self.seconds))


class _Block:
    """Pre-norm attention and a two-layer perceptron, each with a residual."""

    def __init__(self, step: _Step, name: str, tokens: int, width: int, *, dropout: bool) -> None:
        self.step, self.name, self.tokens, self.width, self.dropout = step, name, tokens, width, dropout
        self.qkv_weight = step.parameter(f"{name}_qkv", (width, 3 * width))
        self.out_weight = step.parameter(f"{name}_out", (width, width))
        self.up_weight = step.parameter(f"{name}_up", (width, 4 * width))
        self.down_weight = step.parameter(f"{name}_down", (4 * width, width))
        self.saved: dict[str, ValueId] = {}

    def norm(self, key: str, x: ValueId) -> ValueId:
        h, mean, scale = self.step.op(
            "layer_norm",
            x,
            outputs=[self.step.like(key, x), f"mean: f32[{self.tokens}]", f"scale: f32[{self.tokens}]"],
        )
        self.saved |= {f"{key}_in": x, key: h, f"{key}_mean": mean, f"{key}_scale": scale}
        return h

    def norm_backward(self, key: str, grad: ValueId) -> ValueId:
        operands = [self.saved[f"{key}{part}"] for part in ("_in", "_mean", "_scale")]
        return self.step.op("layer_norm_backward", grad, *operands, outputs=[self.step.like("d", grad)])[0]

    def drop(self, key: str, x: ValueId) -> ValueId:
        if not self.dropout:
            return x
        out, self.saved[key] = self.step.op(
            "dropout", x, outputs=[self.step.like("dropped", x), f"mask: bool[{self.tokens}, {self.width}]"]
        )
        return out

    def drop_backward(self, key: str, grad: ValueId) -> ValueId:
        if not self.dropout:
            return grad
        return self.step.op("dropout_backward", grad, self.saved[key], outputs=[self.step.like("d", grad)])[0]

    def forward(self, x: ValueId) -> ValueId:
        step, saved, n, d = self.step, self.saved, self.tokens, self.width
        h = self.norm("n1", x)
        qkv = step.matmul("qkv", h, self.qkv_weight, n, d, 3 * d)
        (heads,) = step.op("view", qkv, outputs=[f"heads: f32[3, {n}, {d}] @{step.name(qkv)}"])
        attended, lse = step.op(
            "attention", heads, outputs=[f"attended: f32[{n}, {d}]", f"lse: f32[{n}]"], flops=4.0 * n * n * d
        )
        (flat,) = step.op("view", attended, outputs=[f"flat: f32[{n}, {d}] @{step.name(attended)}"])
        saved |= {"heads": heads, "attended": attended, "lse": lse, "flat": flat}
        projected = self.drop("drop1", step.matmul("projected", flat, self.out_weight, n, d, d))
        (middle,) = step.op("add", x, projected, outputs=[f"middle: f32[{n}, {d}]"])
        h = self.norm("n2", middle)
        saved["up"] = step.matmul("up", h, self.up_weight, n, d, 4 * d)
        (saved["act"],) = step.op("gelu", saved["up"], outputs=[f"act: f32[{n}, {4 * d}]"])
        down = self.drop("drop2", step.matmul("down", saved["act"], self.down_weight, n, 4 * d, d))
        (out,) = step.op("add", middle, down, outputs=[f"out: f32[{n}, {d}]"])
        return out

    def backward(self, grad: ValueId) -> ValueId:
        step, saved, n, d = self.step, self.saved, self.tokens, self.width
        inner = self.drop_backward("drop2", grad)
        step.gradient(self.down_weight, step.matmul("d_down", saved["act"], inner, 4 * d, n, d))
        d_act = step.matmul("d_act", inner, self.down_weight, n, d, 4 * d)
        (d_up,) = step.op("gelu_backward", d_act, saved["up"], outputs=[f"d_up: f32[{n}, {4 * d}]"])
        step.gradient(self.up_weight, step.matmul("d_up_weight", saved["n2"], d_up, d, n, 4 * d))
        branch = self.norm_backward("n2", step.matmul("d_n2", d_up, self.up_weight, n, 4 * d, d))
        (grad,) = step.op("add", grad, branch, outputs=[f"d_middle: f32[{n}, {d}]"])
        inner = self.drop_backward("drop1", grad)
        step.gradient(self.out_weight, step.matmul("d_out", saved["flat"], inner, d, n, d))
        d_flat = step.matmul("d_flat", inner, self.out_weight, n, d, d)
        (d_heads,) = step.op(
            "attention_backward",
            d_flat,
            saved["heads"],
            saved["attended"],
            saved["lse"],
            outputs=[f"d_heads: f32[3, {n}, {d}]"],
            flops=10.0 * n * n * d,
        )
        (d_qkv,) = step.op("view", d_heads, outputs=[f"d_qkv: f32[{n}, {3 * d}] @{step.name(d_heads)}"])
        step.gradient(self.qkv_weight, step.matmul("d_qkv_weight", saved["n1"], d_qkv, d, n, 3 * d))
        branch = self.norm_backward("n1", step.matmul("d_n1", d_qkv, self.qkv_weight, n, 3 * d, d))
        (grad,) = step.op("add", grad, branch, outputs=[f"d_in: f32[{n}, {d}]"])
        return grad


class _ConvBlock:
    """Two times convolution, batch norm, activation in place; the residual is added in place before the last."""

    def __init__(self, step: _Step, name: str, batch: int, channels: int, pixels: int) -> None:
        self.step = step
        self.flops = 2.0 * 9 * batch * channels * channels * pixels
        self.channels = channels
        self.weights = [step.parameter(f"{name}_w{i}", (channels, channels, 9)) for i in (0, 1)]
        self.scales = [step.parameter(f"{name}_s{i}", (channels,)) for i in (0, 1)]
        self.statistics = [
            [step.tensor(f"{name}_{kind}{i}", (channels,), Kind.BUFFER) for kind in ("mean", "var")]
            for i in (0, 1)
        ]
        self.saved: list[dict[str, ValueId]] = []

    def forward(self, x: ValueId) -> ValueId:
        step, h = self.step, x
        for index in (0, 1):
            (c,) = step.op("conv", h, self.weights[index], outputs=[step.like("c", x)], flops=self.flops)
            n, mean, scale = step.op(
                "batch_norm",
                c,
                self.scales[index],
                *self.statistics[index],
                outputs=[step.like("n", x), f"m: f32[{self.channels}]", f"r: f32[{self.channels}]"],
            )
            if index == 1:
                n = step.in_place("add_", n, x)
            out = step.in_place("relu_", n)
            self.saved.append({"in": h, "c": c, "mean": mean, "scale": scale, "out": out})
            h = out
        return h

    def backward(self, grad: ValueId) -> ValueId:
        step = self.step
        residual = None
        for index in (1, 0):
            saved = self.saved[index]
            (grad,) = step.op("relu_backward", grad, saved["out"], outputs=[step.like("d", grad)])
            if index == 1:
                residual = grad
            d_c, d_scale = step.op(
                "batch_norm_backward",
                grad,
                saved["c"],
                self.scales[index],
                saved["mean"],
                saved["scale"],
                outputs=[step.like("d_c", grad), f"d_s: f32[{self.channels}]"],
            )
            step.gradient(self.scales[index], d_scale)
            grad, d_weight = step.op(
                "conv_backward",
                d_c,
                saved["in"],
                self.weights[index],
                outputs=[step.like("d_in", d_c), f"d_w: f32[{self.channels}, {self.channels}, 9]"],
                flops=2 * self.flops,
            )
            step.gradient(self.weights[index], d_weight)
        assert residual is not None
        return step.in_place("add_", grad, residual)


class _PooledStage:
    """Convolution, batch norm, activation in place, pooling; what the backward of each reads is what frameworks save."""

    def __init__(self, step: _Step, name: str, batch: int, channels: int, pixels: int) -> None:
        self.step = step
        self.shape = f"f32[{batch}, {channels}, {pixels}]"
        self.channels = channels
        self.flops = 2.0 * 9 * batch * channels * channels * pixels
        self.weight = step.parameter(f"{name}_w", (channels, channels, 9))
        self.scale = step.parameter(f"{name}_s", (channels,))
        self.statistics = [
            step.tensor(f"{name}_{kind}", (channels,), Kind.BUFFER) for kind in ("mean", "var")
        ]
        self.saved: dict[str, ValueId] = {}

    def forward(self, x: ValueId) -> ValueId:
        step = self.step
        (c,) = step.op("conv", x, self.weight, outputs=[f"c: {self.shape}"], flops=self.flops)
        n, mean, scale = step.op(
            "batch_norm",
            c,
            self.scale,
            *self.statistics,
            outputs=[f"n: {self.shape}", f"m: f32[{self.channels}]", f"r: f32[{self.channels}]"],
        )
        active = step.in_place("relu_", n)
        pooled, chosen = step.op(
            "max_pool",
            active,
            outputs=[f"p: {self.shape}", f"i: {self.shape.replace('f32', 'i64')}"],
        )
        self.saved = {"x": x, "c": c, "mean": mean, "scale": scale, "active": active, "chosen": chosen}
        return pooled

    def backward(self, grad: ValueId) -> ValueId:
        step, saved = self.step, self.saved
        (grad,) = step.op(
            "max_pool_backward", grad, saved["active"], saved["chosen"], outputs=[f"d_a: {self.shape}"]
        )
        (grad,) = step.op("relu_backward", grad, saved["active"], outputs=[f"d_n: {self.shape}"])
        d_c, d_scale = step.op(
            "batch_norm_backward",
            grad,
            saved["c"],
            self.scale,
            saved["mean"],
            saved["scale"],
            outputs=[f"d_c: {self.shape}", f"d_s: f32[{self.channels}]"],
        )
        step.gradient(self.scale, d_scale)
        grad, d_weight = step.op(
            "conv_backward",
            d_c,
            saved["x"],
            self.weight,
            outputs=[f"d_x: {self.shape}", f"d_w: f32[{self.channels}, {self.channels}, 9]"],
            flops=2 * self.flops,
        )
        step.gradient(self.weight, d_weight)
        return grad
