"""Blocks of made-up training steps: each is written forward, and then backward from what its forward has saved."""

from __future__ import annotations

from neaptide.ir.builder import ValueId
from neaptide.ir.values import Kind
from neaptide_corpus.step_tape import StepTape


class TransformerBlock:
    """Pre-norm attention and a two-layer perceptron, each with a residual."""

    def __init__(self, step: StepTape, name: str, tokens: int, width: int, *, dropout: bool) -> None:
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


class ConvBlock:
    """Two times convolution, batch norm, activation in place; the residual is added in place before the last."""

    def __init__(self, step: StepTape, name: str, batch: int, channels: int, pixels: int) -> None:
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


class PooledStage:
    """Convolution, batch norm, activation in place, pooling; what the backward of each reads is what frameworks save."""

    def __init__(self, step: StepTape, name: str, batch: int, channels: int, pixels: int) -> None:
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
