"""Networks of convolutions: every kind of convolution, pooling, resampling and norm, in the forms of known networks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family, descend, trained

FAMILY = Family("convolutions")


def classify(model, batch):
    images, labels = batch
    return F.cross_entropy(model(images), labels)


def pictures(count=8, channels=3, side=12, classes=5):
    return torch.randn(count, channels, side, side), torch.randint(0, classes, (count,))


class Bottleneck(nn.Module):
    def __init__(self, channels, stride=1, groups=1):
        super().__init__()
        self.reduce = nn.Conv2d(channels, channels // 2, 1, bias=False)
        self.conv = nn.Conv2d(channels // 2, channels // 2, 3, stride, 1, groups=groups, bias=False)
        self.expand = nn.Conv2d(channels // 2, channels, 1, bias=False)
        self.norms = nn.ModuleList(
            [nn.BatchNorm2d(channels // 2), nn.BatchNorm2d(channels // 2), nn.BatchNorm2d(channels)]
        )
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(channels, channels, 1, stride)

    def forward(self, x):
        out = F.relu(self.norms[0](self.reduce(x)), inplace=True)
        out = F.relu(self.norms[1](self.conv(out)), inplace=True)
        out = self.norms[2](self.expand(out))
        out += self.shortcut(x)
        return F.relu(out, inplace=True)


@FAMILY.add("resnext", "groups")
def grouped_bottlenecks():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3),
        Bottleneck(16, groups=4),
        Bottleneck(16, 2, 8),
        nn.AdaptiveMaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 5),
    )
    return trained(lambda batch: classify(model, batch), model), pictures()


@FAMILY.add("1d", "causal", "gated")
def wavenet():
    class Layer(nn.Module):
        def __init__(self, dilation):
            super().__init__()
            self.dilation = dilation
            self.conv, self.residual, self.skip = (
                nn.Conv1d(8, 16, 2, dilation=dilation),
                nn.Conv1d(8, 8, 1),
                nn.Conv1d(8, 8, 1),
            )

        def forward(self, x):
            value, gate = self.conv(F.pad(x, (self.dilation, 0))).split(8, dim=1)
            out = torch.tanh(value) * torch.sigmoid(gate)
            return x + self.residual(out), self.skip(out)

    embed, layers, head = (
        nn.Embedding(16, 8),
        nn.ModuleList(Layer(2**i) for i in range(4)),
        nn.Conv1d(8, 16, 1),
    )
    model = nn.ModuleList([embed, layers, head])
    optimizer = torch.optim.Adam(model.parameters())

    def step(tokens):
        x = embed(tokens[:, :-1]).transpose(1, 2)
        total = 0
        for layer in layers:
            x, skip = layer(x)
            total = total + skip
        loss = F.cross_entropy(head(F.relu(total)), tokens[:, 1:])
        descend(optimizer, loss, clears_first=True)
        return loss

    return step, torch.randint(0, 16, (3, 33))


@FAMILY.add("3d")
def video_and_volume():
    model = nn.Sequential(
        nn.Conv3d(1, 4, 3, padding=1),
        nn.BatchNorm3d(4),
        nn.ReLU(),
        nn.MaxPool3d(2),
        nn.Conv3d(4, 4, 3, padding=1, groups=2),
        nn.ELU(),
        nn.ConvTranspose3d(4, 1, 2, 2),
    )
    return trained(lambda x: F.smooth_l1_loss(model(x), x), model), torch.randn(2, 1, 4, 8, 8)


@FAMILY.add("norm", "local response", "ceil")
def alexnet_like_with_odd_pools():
    model = nn.Sequential(
        nn.Conv2d(3, 6, 5, 2),
        nn.ReLU(),
        nn.LocalResponseNorm(3),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Conv2d(6, 6, 3, padding="same"),
        nn.LPPool2d(2, 2),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(6, 5),
    )
    return trained(lambda batch: classify(model, batch), model), pictures(12)


@FAMILY.add("norm", "channels last", "group norm")
def channels_last_group_norm():
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1),
        nn.GroupNorm(4, 8),
        nn.SiLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.GroupNorm(1, 8),
        nn.SiLU(),
    )
    model = model.to(memory_format=torch.channels_last)

    def loss_of(model, x):
        return model(x).mean((2, 3)).square().sum()

    batch = torch.randn(4, 4, 10, 10).to(memory_format=torch.channels_last)
    return trained(lambda batch: loss_of(model, batch), model), batch


@FAMILY.add("involution", "unfold")
def local_attention_by_unfold_and_fold():
    query, kernel = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 9, 1)

    def loss_of(x):
        batch, channels, height, width = x.shape
        patches = F.unfold(query(x), 3, padding=1).view(batch, channels, 9, height * width)
        weights = kernel(x).flatten(2).softmax(1).unsqueeze(1)
        mixed = (patches * weights).sum(2).view_as(x)
        back = F.fold((patches * weights).flatten(1, 2), (height, width), 3, padding=1)
        return (mixed - x).square().mean() + back.abs().mean()

    return trained(loss_of, query, kernel), torch.randn(2, 4, 8, 8)
