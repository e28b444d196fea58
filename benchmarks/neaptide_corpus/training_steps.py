"""Whole training steps made by hand, with the shapes of a transformer and of a residual conv net.

They have what real captures have: saved activations, views, in-place activations, batch norm with running
statistics, dropout masks, and optimizer updates after the backward. Ops are named `toy.*` and have rows of their
own, so that nothing but numbers differs from a captured program. Seconds are those of a roofline of
`FLOPS_PER_S` and `BYTES_PER_S`.
"""

from __future__ import annotations

import functools

from neaptide.ir.registry import OpRegistry, OpSpec, Replay, Trait
from neaptide.ir.values import Kind
from neaptide_corpus.step_blocks import ConvBlock, PooledStage, TransformerBlock
from neaptide_corpus.step_tape import StepTape, TrainingStep


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


@functools.cache
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
    step = StepTape("transformer", toy_registry())
    x = step.tensor("x", (tokens, width), Kind.INPUT)
    blocks = []
    for layer in range(layers):
        block = TransformerBlock(step, f"h{layer}", tokens, width, dropout=dropout)
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


@functools.cache
def conv_step(
    *, blocks: int = 4, batch: int = 8, channels: int = 16, pixels: int = 256, optimizer: str = "sgd"
) -> TrainingStep:
    """Residual blocks of two convolutions with batch norm and in-place activations; one fat classifier."""
    step = StepTape("conv", toy_registry())
    x = step.tensor("x", (batch, channels, pixels), Kind.INPUT)
    tape: list[ConvBlock] = []
    for index in range(blocks):
        block = ConvBlock(step, f"b{index}", batch, channels, pixels)
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


@functools.cache
def pooled_step(
    *, stages: int = 4, batch: int = 8, channels: int = 16, pixels: int = 256, optimizer: str = "sgd"
) -> TrainingStep:
    """A plain chain of stages: convolution, batch norm, activation in place, pooling at stride one; a classifier."""
    step = StepTape("pooled", toy_registry())
    x = step.tensor("x", (batch, channels, pixels), Kind.INPUT)
    tape: list[PooledStage] = []
    for index in range(stages):
        stage = PooledStage(step, f"s{index}", batch, channels, pixels)
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
