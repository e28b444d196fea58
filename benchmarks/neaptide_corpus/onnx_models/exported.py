"""Exports of the PyTorch modules to ONNX."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import onnx
import torch
from torch import Tensor, nn

from neaptide_corpus.onnx_models import convolutional, sequential

OPSET: Final = 20
_SEED: Final = 0

Case = tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]]]


def _image(side: int, channels: int = 3) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(1, channels, side, side),)


def _floats(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(*shape),)


def _words(length: int) -> Tensor:
    return torch.randint(0, sequential.WORDS, (1, length))


CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {
        "two_convolutions": (convolutional.two_convolutions, _floats(1, 1, 125, 90)),
        "mobilenet_v2": (convolutional.mobilenet_v2, _image(96)),
        "resnet18": (convolutional.resnet18, _image(96)),
        "unet": (convolutional.UNet, _image(96)),
        "densenet": (convolutional.densenet, _image(32)),
        "convnext": (convolutional.convnext, _image(64)),
        "vit": (sequential.VisionTransformer, _image(64)),
        "bert": (sequential.Bert, lambda: (_words(64), torch.randint(0, 2, (1, 64)))),
        "gpt2": (sequential.Gpt, lambda: (_words(64),)),
        "lstm": (lambda: sequential.Recurrent(nn.LSTM), _floats(1, 32, 40)),
        "gru": (lambda: sequential.Recurrent(nn.GRU), _floats(1, 32, 40)),
        "shufflenet": (convolutional.shufflenet, _image(64)),
        "inception": (convolutional.inception, _image(64)),
        "squeezenet": (convolutional.squeezenet, _image(64)),
        "efficientnet": (convolutional.efficientnet, _image(64)),
        "resnext": (convolutional.resnext, _image(64)),
        "mixer": (sequential.Mixer, _image(64)),
        "temporal_convolutions": (sequential.temporal_convolutions, _floats(1, 8, 256)),
        "yolo": (convolutional.Yolo, _image(64)),
        "super_resolution": (convolutional.super_resolution, _image(48, 1)),
    }
)
"""Name -> what makes the module, and its inputs."""


def export(name: str) -> onnx.ModelProto:
    """The export of one of `CASES`, in inference mode, as `torch.onnx.export` writes it. Seconds."""
    make, inputs = CASES[name]
    torch.manual_seed(_SEED)
    module = make().eval()
    _vary_norms(module)
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            program = torch.onnx.export(module, inputs(), dynamo=True, opset_version=OPSET, verbose=False)
    finally:
        log.setLevel(level)
    assert program is not None
    model = program.model_proto
    model.graph.name = name
    return model


def _vary_norms(module: nn.Module) -> None:
    """Statistics as after training: with those of a fresh module a wrong fold of a batch norm would not show."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            assert part.running_mean is not None
            assert part.running_var is not None
            nn.init.normal_(part.running_mean, std=0.1)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias, std=0.1)
