"""Mixing along a sequence without plain attention: mixers, experts, caches, latents."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family, descending

FAMILY = Family("mixing")
WIDTH, HEADS = 12, 3


@FAMILY.add("vision transformer")
def patches_with_a_class_token():
    class Vision(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(3, WIDTH, 4, 4)
            self.token, self.place = (
                nn.Parameter(torch.zeros(1, 1, WIDTH)),
                nn.Parameter(torch.randn(1, 10, WIDTH) * 0.02),
            )
            self.blocks = nn.ModuleList(
                nn.TransformerEncoderLayer(WIDTH, HEADS, 24, 0.0, "gelu", batch_first=True, norm_first=True)
                for _ in range(2)
            )
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5)

        def forward(self, images):
            x = self.patch(images).flatten(2).mT
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.place
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x[:, 0]))

    model = Vision()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.3)

    def step(batch):
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, (torch.randn(4, 3, 12, 12), torch.randint(0, 5, (4,)))


@FAMILY.add("mixer", "einsum")
def mlp_mixer():
    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
            self.tokens = nn.Sequential(nn.Linear(9, 18), nn.GELU(), nn.Linear(18, 9))
            self.channels = nn.Sequential(nn.Linear(WIDTH, 24), nn.GELU(), nn.Linear(24, WIDTH))

        def forward(self, x):
            x = x + self.tokens(self.norms[0](x).mT).mT
            return x + self.channels(self.norms[1](x))

    model = nn.Sequential(Mixer(), Mixer(), nn.LayerNorm(WIDTH))
    optimizer = torch.optim.Adam(model.parameters())

    return descending(optimizer, lambda x: torch.einsum("bnc,bnc->", model(x), x) / x.numel()), torch.randn(
        6, 9, WIDTH
    )
