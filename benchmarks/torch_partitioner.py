"""PyTorch's own partitioner on the models after `gpt12` and `resnet16`: a node sequence for each memory budget ratio.

The joint graph is traced anew; its operations are found in the instance by name, so the sequences are those of
`min_cut_rematerialization_partition` itself, evaluated like every other plan of the instance.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import nn
from torch._functorch import config as functorch_config
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.func import functional_call
from torch.nn import functional

_SIDE: Final = ".side"  # of an operation's small outputs; they are made with it


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, 2)
        heads = [part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts]
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class _Gpt(nn.Module):
    def __init__(self, layers: int, width: int = 128, heads: int = 4, vocabulary: int = 1024) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(256, width))
        self.layers = nn.Sequential(*(_Layer(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(
            self.norm(self.layers(self.tokens(tokens) + self.places[: tokens.shape[1]]))
        ).flatten(0, 1)


class _Bottleneck(nn.Module):
    def __init__(self, enter: int, width: int, stride: int) -> None:
        super().__init__()
        leave = 4 * width
        self.conv1, self.norm1 = nn.Conv2d(enter, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3, self.norm3 = nn.Conv2d(width, leave, 1, bias=False), nn.BatchNorm2d(leave)
        self.short = nn.Identity()
        if stride != 1 or enter != leave:
            self.short = nn.Sequential(nn.Conv2d(enter, leave, 1, stride, bias=False), nn.BatchNorm2d(leave))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = functional.relu(self.norm1(self.conv1(x)))
        h = functional.relu(self.norm2(self.conv2(h)))
        return functional.relu(self.norm3(self.conv3(h)) + self.short(x))


class _Resnet(nn.Module):
    def __init__(self, depths: Sequence[int] = (3, 4, 6, 3), width: int = 16) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        blocks = []
        enter = width
        for stage, depth in enumerate(depths):
            for block in range(depth):
                blocks.append(_Bottleneck(enter, width << stage, 2 if stage and not block else 1))
                enter = 4 * (width << stage)
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(enter, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(functional.relu(self.norm(self.stem(x)))).mean((2, 3)))


MODELS: Final[Mapping[str, Callable[[], tuple[nn.Module, torch.Tensor, torch.Tensor]]]] = {
    "gpt12": lambda: (_Gpt(12), torch.randint(0, 1024, (2, 256)), torch.randint(0, 1024, (512,))),
    "resnet16": lambda: (_Resnet(), torch.randn(16, 3, 32, 32), torch.randint(0, 100, (16,))),
}


def sequences(model: str, names: Sequence[str], ratios: Sequence[float]) -> dict[float, tuple[int, ...]]:
    """By ratio, the instance's nodes as they run: PyTorch's forward, then its backward with what it makes again.

    Args:
        model: of `MODELS`.
        names: of the instance's nodes.
        ratios: values of `activation_memory_budget`.

    Raises:
        ValueError: this PyTorch traces other operations than the instance has.
    """
    index = {name: number for number, name in enumerate(names)}
    found = {}
    for ratio, parts in _partitioned(model, ratios).items():
        sequence = [index[name] for part in parts for name in _instance_names(part, index)]
        if set(sequence) != set(index.values()):
            missing = next(name for name, number in index.items() if number not in sequence)
            raise ValueError(f"torch {torch.__version__} traces no {missing} for {model}")
        found[ratio] = tuple(sequence)
    return found


def _instance_names(part: torch.fx.GraphModule, index: Mapping[str, int]) -> list[str]:
    names = [node.name for node in part.graph.nodes if node.op == "call_function" and node.name in index]
    return [each for name in names for each in (name, name + _SIDE) if each in index]


def _partitioned(model: str, ratios: Sequence[float]) -> dict[float, tuple[torch.fx.GraphModule, ...]]:
    """Forward and backward for each ratio; the first are run, and all are cut from one joint graph."""
    module, x, target = MODELS[model]()
    state = dict(module.named_parameters()) | dict(module.named_buffers())
    found: dict[float, tuple[torch.fx.GraphModule, ...]] = {}

    def cut(joint: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
        for ratio in ratios:
            with functorch_config.patch(activation_memory_budget=ratio):
                parts = min_cut_rematerialization_partition(copy.deepcopy(joint), inputs, **options)
            found[ratio] = parts[:2]
        return min_cut_rematerialization_partition(joint, inputs, **options)

    def loss(given: dict[str, torch.Tensor], x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(functional_call(module, given, (x,)), target)

    traced = aot_function(loss, fw_compiler=lambda m, _: m, bw_compiler=lambda m, _: m, partition_fn=cut)
    traced(state, x, target)
    return found
