"""Training steps of other kinds than the zoo's: `factory("long_context@small")` builds `(step, batch)`.

* `long_context`: a llama of one sequence; the logits are far larger than any other activation, and there is no batch.
* `encoder_decoder`: a T5 whose labels are padded with what the loss leaves out, as many in each row as chance has it.
* `odd_convnext`: ConvNeXt-like blocks on seven images, with layer norm and smoothed labels.
* `high_resolution`: convolutions on one large image, loss by pixel; there is no batch.

`tiny` is for tests, `small` for measurements. Weights are random, data are made up.

The `small` sizes of `odd_convnext` and `encoder_decoder` were chosen such that the step by hand in n parts has the shares of
eager's peak, and nearly the times, of two steps that were studied before there was a search:

| step | studied: n, share / time | here |
|---|---|---|
| odd_convnext | 2: .60 / 1.01, 4: .32 / 1.04, 7: .19 / 1.09 | .59 / .95, .33 / .94, .19 / 1.01 |
| encoder_decoder | 2: .62 / 1.02, 4: .41 / 1.03, 8: .30 / 1.22 | .61 / 1.02, .40 / 1.10, .29 / 1.28 |

`light` are the sizes that were called `small` before 2026-11-23, and rows that were recorded then name them so: smaller
kernels, and larger weights beside the activations, which no split makes smaller. By hand in 2 and 4 parts their shares are
.64, .45 and .65, .45; at +10 % ours measured .359 in 1.11 of the time and .326 in 1.24.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch import nn

    from neaptide.zoo import Batch, Step

LEFT_OUT: Final = -100
_LR: Final = 1e-3


def long_context(*, seq: int, vocab: int, width: int, layers: int) -> tuple[Step, Batch]:
    """A llama on one sequence."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from neaptide.zoo.training import Sizes
    from neaptide.zoo.transformers_models import own_loss, token_batch

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=seq,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)
    return _step(model, token_batch(Sizes(vocab=vocab, batch=1, seq=seq, device="cpu")), own_loss)


def encoder_decoder(
    *, batch: int, source: int, target: int, vocab: int, width: int, layers: int
) -> tuple[Step, Batch]:
    """A T5; from a random place on, the labels of each row are left out of the loss."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    from neaptide.zoo.transformers_models import own_loss

    torch.manual_seed(0)
    config = T5Config(
        vocab_size=vocab,
        d_model=width,
        d_kv=width // 4,
        d_ff=4 * width,
        num_layers=layers,
        num_heads=4,
        dropout_rate=0.0,
        use_cache=False,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    model = T5ForConditionalGeneration(config)
    labels = torch.randint(1, vocab, (batch, target))
    lengths = torch.randint(target // 3, target + 1, (batch, 1))
    labels[torch.arange(target) >= lengths] = LEFT_OUT
    data = {"input_ids": torch.randint(1, vocab, (batch, source)), "labels": labels}
    return _step(model, data, own_loss)


def odd_convnext(
    *, batch: int, image: int, widths: tuple[int, ...], depth: int, classes: int
) -> tuple[Step, Batch]:
    """Depthwise convolution, layer norm and MLP in residual blocks, without batch norm."""
    import torch
    from torch import nn

    from neaptide.zoo.training import Sizes, image_batch

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.mix = nn.Conv2d(width, width, 7, padding=3, groups=width)
            self.norm = nn.LayerNorm(width)
            self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.scale = nn.Parameter(torch.full((width,), 0.1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(self.mix(x).permute(0, 2, 3, 1))
            y = self.narrow(nn.functional.gelu(self.widen(y))) * self.scale
            return x + y.permute(0, 3, 1, 2)

    def smoothed(model: nn.Module, data: Batch) -> torch.Tensor:
        return nn.functional.cross_entropy(model(data["images"]), data["labels"], label_smoothing=0.1)

    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4)]
    for place, width in enumerate(widths):
        layers += [Block(width) for _ in range(depth)]
        if place + 1 < len(widths):
            layers += [nn.GroupNorm(1, width), nn.Conv2d(width, widths[place + 1], 2, 2)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes)]
    sizes = Sizes(batch=batch, image=image, classes=classes, device="cpu", precision="fp32")
    return _step(nn.Sequential(*layers), image_batch(sizes), smoothed)


def plain_convolutions(width: int, depth: int) -> nn.Module:
    """Convolutions of three by three without a stride, from three channels to three."""
    from torch import nn

    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    layers.append(nn.Conv2d(width, 3, 3, padding=1))
    return nn.Sequential(*layers)


def high_resolution(*, image: int, width: int, depth: int) -> tuple[Step, Batch]:
    """Convolutions without a stride that learn to take noise from one image."""
    import torch
    from torch import nn

    def error(model: nn.Module, data: Batch) -> torch.Tensor:
        return nn.functional.mse_loss(model(data["images"]), data["clean"])

    torch.manual_seed(0)
    shape = (1, 3, image, image)
    return _step(
        plain_convolutions(width, depth), {"images": torch.randn(shape), "clean": torch.randn(shape)}, error
    )


def _step(model: nn.Module, data: Batch, loss_of: Callable[..., Any]) -> tuple[Step, Batch]:
    from neaptide.zoo.training import make_optimizer, make_step

    return make_step(model.train(), make_optimizer("adamw", model, _LR), loss_of, "cpu", "fp32"), data


_SIZES: Final[dict[str, tuple[Callable[..., tuple[Any, Any]], dict[str, dict[str, Any]]]]] = {
    "long_context": (
        long_context,
        {
            "tiny": {"seq": 32, "vocab": 256, "width": 32, "layers": 2},
            "small": {"seq": 2048, "vocab": 16_000, "width": 128, "layers": 4},
        },
    ),
    "encoder_decoder": (
        encoder_decoder,
        {
            "tiny": {"batch": 4, "source": 12, "target": 8, "vocab": 128, "width": 32, "layers": 1},
            "light": {"batch": 16, "source": 128, "target": 32, "vocab": 8000, "width": 128, "layers": 3},
            "small": {"batch": 16, "source": 160, "target": 48, "vocab": 8000, "width": 128, "layers": 4},
        },
    ),
    "odd_convnext": (
        odd_convnext,
        {
            "tiny": {"batch": 3, "image": 32, "widths": (8, 16), "depth": 1, "classes": 10},
            "light": {"batch": 7, "image": 128, "widths": (48, 96, 192), "depth": 2, "classes": 10},
            "small": {"batch": 7, "image": 160, "widths": (48, 96), "depth": 3, "classes": 10},
        },
    ),
    "high_resolution": (
        high_resolution,
        {"tiny": {"image": 32, "width": 8, "depth": 2}, "small": {"image": 512, "width": 16, "depth": 6}},
    ),
}
NAMES: Final = tuple(_SIZES)


def factory(spec: str) -> Callable[[], tuple[Step, Batch]]:
    """A function without arguments that builds `(step, batch)`; `spec` is `NAME@SIZE`."""
    name, _, size = spec.partition("@")
    build, sizes = _SIZES[name]
    return partial(build, **sizes[size])
