"""Small convolutional networks as PyTorch modules, for export."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def conv_norm(
    channels: int, out: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: nn.Module | None = None
) -> nn.Sequential:
    """A "same" convolution, batch norm, and an activation if one is given."""
    conv = nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), *([act] if act else []))


def head(channels: int, classes: int = 10) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def two_convolutions() -> nn.Module:
    """For 1x125x90: two convolutions of 32 channels, each with a pooling by 4, and two dense layers."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4)),
        *(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4)),
        *(nn.Flatten(), nn.Linear(32 * 7 * 5, 64), nn.ReLU(), nn.Linear(64, 3)),
    )


class _Residual(nn.Module):
    def __init__(
        self, body: nn.Module, skip: nn.Module | None = None, after: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.body, self.skip, self.after = body, skip or nn.Identity(), after or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.body(x) + self.skip(x))


def _inverted(channels: int, out: int, stride: int, expand: int, act: type[nn.Module]) -> nn.Module:
    hidden = channels * expand
    first = [conv_norm(channels, hidden, 1, act=act())] if expand > 1 else []
    body = nn.Sequential(
        *first, conv_norm(hidden, hidden, 3, stride, hidden, act()), conv_norm(hidden, out, 1)
    )
    return _Residual(body) if stride == 1 and channels == out else body


def _divisible(channels: float) -> int:
    """Channels in eights, as the reference code of MobileNet rounds them."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def mobilenet_v2(width: float = 0.35) -> nn.Module:
    """Sandler et al., CVPR 2018."""
    table = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    channels = _divisible(32 * width)
    layers: list[nn.Module] = [conv_norm(3, channels, 3, 2, act=nn.ReLU6())]
    for expand, base, count, stride in table:
        out = _divisible(base * width)
        for i in range(count):
            layers.append(_inverted(channels, out, stride if i == 0 else 1, expand, nn.ReLU6))
            channels = out
    return nn.Sequential(*layers, conv_norm(channels, 1280, 1, act=nn.ReLU6()), head(1280))


class _SqueezeExcite(nn.Module):
    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            *(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, inner, 1), nn.SiLU()),
            *(nn.Conv2d(inner, channels, 1), nn.Sigmoid()),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


def efficientnet() -> nn.Module:
    """Inverted residuals with squeeze-and-excite (Tan and Le, ICML 2019), three stages."""
    layers: list[nn.Module] = [conv_norm(3, 16, 3, 2, act=nn.SiLU())]
    channels = 16
    for out, count, stride in ((16, 1, 1), (24, 2, 2), (40, 2, 2)):
        for i in range(count):
            hidden, step = channels * 4, stride if i == 0 else 1
            body = nn.Sequential(
                conv_norm(channels, hidden, 1, act=nn.SiLU()),
                conv_norm(hidden, hidden, 5, step, hidden, nn.SiLU()),
                _SqueezeExcite(hidden, channels // 4),
                conv_norm(hidden, out, 1),
            )
            layers.append(_Residual(body) if step == 1 and channels == out else body)
            channels = out
    return nn.Sequential(*layers, conv_norm(channels, 160, 1, act=nn.SiLU()), head(160))


def resnet18(width: int = 32) -> nn.Module:
    """He et al., CVPR 2016: the depth of 18, half the width."""
    layers: list[nn.Module] = [conv_norm(3, width, 7, 2, act=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
    channels = width
    for stage in range(4):
        out, stride = width << stage, 1 if stage == 0 else 2
        for step in (stride, 1):
            body = nn.Sequential(conv_norm(channels, out, 3, step, act=nn.ReLU()), conv_norm(out, out))
            skip = None if step == 1 and channels == out else conv_norm(channels, out, 1, step)
            layers.append(_Residual(body, skip, nn.ReLU()))
            channels = out
    return nn.Sequential(*layers, head(channels))


def resnext() -> nn.Module:
    """Bottlenecks with grouped convolutions (Xie et al., CVPR 2017), two stages."""
    layers: list[nn.Module] = [conv_norm(3, 32, 3, 2, act=nn.ReLU())]
    channels = 32
    for out, inner, stride in ((64, 32, 1), (128, 64, 2)):
        for step in (stride, 1):
            body = nn.Sequential(
                conv_norm(channels, inner, 1, act=nn.ReLU()),
                conv_norm(inner, inner, 3, step, 8, nn.ReLU()),
                conv_norm(inner, out, 1),
            )
            skip = None if step == 1 and channels == out else conv_norm(channels, out, 1, step)
            layers.append(_Residual(body, skip, nn.ReLU()))
            channels = out
    return nn.Sequential(*layers, head(channels))


class UNet(nn.Module):
    """Ronneberger et al., MICCAI 2015: three levels, 16 channels at full resolution."""

    def __init__(self, base: int = 16, levels: int = 3) -> None:
        super().__init__()
        widths = [base << i for i in range(levels)]
        self.down = nn.ModuleList(_double(3 if i == 0 else widths[i - 1], w) for i, w in enumerate(widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(w, w // 2, 2, 2) for w in widths[:0:-1])
        self.merge = nn.ModuleList(_double(w, w // 2) for w in widths[:0:-1])
        self.last = nn.Conv2d(base, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else functional.max_pool2d(x, 2))
            skips.append(x)
        for up, merge, skip in zip(self.up, self.merge, skips[-2::-1], strict=True):
            x = merge(torch.cat([skip, up(x)], 1))
        return self.last(x)


def _double(channels: int, out: int) -> nn.Module:
    return nn.Sequential(conv_norm(channels, out, act=nn.ReLU()), conv_norm(out, out, act=nn.ReLU()))


class _DenseBlock(nn.Module):
    def __init__(self, channels: int, growth: int, count: int) -> None:
        super().__init__()
        widths = range(channels, channels + count * growth, growth)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(w), nn.ReLU(), nn.Conv2d(w, growth, 3, padding=1)) for w in widths
        )

    def forward(self, x: Tensor) -> Tensor:
        made = [x]
        for layer in self.layers:
            made.append(layer(torch.cat(made, 1) if len(made) > 1 else x))
        return torch.cat(made, 1)


def densenet() -> nn.Module:
    """Huang et al., CVPR 2017: two blocks of four layers, growth 24."""
    layers: list[nn.Module] = [nn.Conv2d(3, 12, 3, padding=1)]
    channels = 12
    for block in range(2):
        layers.append(_DenseBlock(channels, 24, 4))
        channels += 96
        layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        if block == 0:
            layers += [nn.Conv2d(channels, channels // 2, 1), nn.AvgPool2d(2)]
            channels //= 2
    return nn.Sequential(*layers, head(channels))


class _Shuffle(nn.Module):
    """A unit of ShuffleNet V2 with stride 1: one half passes, the channels are shuffled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.body = nn.Sequential(
            conv_norm(half, half, 1, act=nn.ReLU()),
            conv_norm(half, half, 3, 1, half),
            conv_norm(half, half, 1, act=nn.ReLU()),
        )

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = x.chunk(2, 1)
        return functional.channel_shuffle(torch.cat([kept, self.body(changed)], 1), 2)


def shufflenet() -> nn.Module:
    """Ma et al., ECCV 2018: two stages of units with stride 1, reduced by poolings."""
    return nn.Sequential(
        *(conv_norm(3, 24, 3, 2, act=nn.ReLU()), _Shuffle(24), _Shuffle(24)),
        *(conv_norm(24, 48, 3, 2, act=nn.ReLU()), _Shuffle(48), _Shuffle(48), nn.MaxPool2d(2), head(48)),
    )


class _Branches(nn.Module):
    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def _inception_cell(channels: int, width: int) -> nn.Module:
    def act(channels: int, out: int, kernel: int) -> nn.Module:
        return conv_norm(channels, out, kernel, act=nn.ReLU())

    return _Branches(
        act(channels, width, 1),
        nn.Sequential(act(channels, width, 1), act(width, width, 3)),
        nn.Sequential(act(channels, width // 2, 1), act(width // 2, width, 3), act(width, width, 3)),
        nn.Sequential(nn.MaxPool2d(3, 1, 1), act(channels, width, 1)),
    )


def inception() -> nn.Module:
    """Szegedy et al., CVPR 2015: three cells of four branches."""
    layers: list[nn.Module] = [conv_norm(3, 16, 3, 2, act=nn.ReLU())]
    layers += [_inception_cell(16, 16), _inception_cell(64, 24), nn.MaxPool2d(2), _inception_cell(96, 32)]
    return nn.Sequential(*layers, head(128))


def _fire(channels: int, squeeze: int, expand: int) -> nn.Module:
    pair = _Branches(
        nn.Sequential(nn.Conv2d(squeeze, expand, 1), nn.ReLU()),
        nn.Sequential(nn.Conv2d(squeeze, expand, 3, padding=1), nn.ReLU()),
    )
    return nn.Sequential(nn.Conv2d(channels, squeeze, 1), nn.ReLU(), pair)


def squeezenet() -> nn.Module:
    """Iandola et al., 2016: four fire modules."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True)),
        *(_fire(32, 8, 32), _fire(64, 8, 32), nn.MaxPool2d(3, 2, ceil_mode=True)),
        *(_fire(64, 16, 64), _fire(128, 16, 64), head(128)),
    )


class Yolo(nn.Module):
    """A one-stage detector: a pyramid of poolings, upsampling into an earlier map, two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv_norm(3, 16, 3, 2, act=nn.SiLU()), conv_norm(16, 32, 3, 2, act=nn.SiLU())
        )
        self.deep = nn.Sequential(
            conv_norm(32, 64, 3, 2, act=nn.SiLU()), _Residual(conv_norm(64, 64, act=nn.SiLU()))
        )
        self.squeeze, self.spread = conv_norm(64, 32, 1, act=nn.SiLU()), conv_norm(128, 64, 1, act=nn.SiLU())
        self.merge = conv_norm(96, 32, 3, act=nn.SiLU())
        self.coarse, self.fine = nn.Conv2d(64, 18, 1), nn.Conv2d(32, 18, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        early = self.stem(x)
        pooled = [self.squeeze(self.deep(early))]
        for _ in range(3):
            pooled.append(functional.max_pool2d(pooled[-1], 5, 1, 2))
        late = self.spread(torch.cat(pooled, 1))
        wide = functional.interpolate(late, scale_factor=2.0, mode="nearest")
        return self.fine(self.merge(torch.cat([wide, early], 1))).sigmoid(), self.coarse(late).sigmoid()


def super_resolution() -> nn.Module:
    """Shi et al., CVPR 2016: sub-pixel convolution by 3."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 5, padding=2), nn.Tanh(), nn.Conv2d(32, 16, 3, padding=1), nn.Tanh()),
        *(nn.Conv2d(16, 9, 3, padding=1), nn.PixelShuffle(3)),
    )


class _ConvNextBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.deep = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.wide, self.narrow = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        y = self.narrow(functional.gelu(self.wide(y))) * self.scale
        return x + y.permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    """Liu et al., CVPR 2022: two stages of two blocks."""
    return nn.Sequential(
        *(nn.Conv2d(3, 24, 4, 4), _ConvNextBlock(24), _ConvNextBlock(24)),
        *(nn.Conv2d(24, 48, 2, 2), _ConvNextBlock(48), _ConvNextBlock(48), head(48)),
    )
