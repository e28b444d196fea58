"""Tasks on pictures: segmentation, detection, super resolution, style, patches."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family, trained

FAMILY = Family("pictures")


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = self.block(1, 6)
        self.down = nn.ModuleList([self.block(6, 8), self.block(8, 10)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(10, 8, 2, 2), nn.ConvTranspose2d(8, 6, 2, 2)])
        self.merge = nn.ModuleList([self.block(16, 8), self.block(12, 6)])
        self.exit = nn.Conv2d(6, 2, 1)

    @staticmethod
    def block(inside, outside):
        return nn.Sequential(
            nn.Conv2d(inside, outside, 3, padding=1),
            nn.InstanceNorm2d(outside, affine=True),
            nn.LeakyReLU(0.1),
        )

    def forward(self, x):
        x = self.enter(x)
        skips = []
        for block in self.down:
            skips.append(x)
            x = block(F.max_pool2d(x, 2))
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skips.pop(), up(x)], dim=1))
        return self.exit(x)


@FAMILY.add("unet", "segmentation")
def unet_with_dice_loss():
    model = UNet()

    def dice(model, batch):
        image, mask = batch
        logits = model(image)
        share = logits.softmax(1)[:, 1]
        overlap = (share * mask).sum((1, 2))
        dice = 1 - (2 * overlap + 1) / (share.sum((1, 2)) + mask.sum((1, 2)) + 1)
        return F.cross_entropy(logits, mask.long()) + dice.mean()

    return trained(lambda batch: dice(model, batch), model), (
        torch.randn(2, 1, 16, 16),
        torch.rand(2, 16, 16).round(),
    )


@FAMILY.add("superresolution", "pixel shuffle")
def super_resolution():
    model = nn.Sequential(
        nn.Conv2d(1, 12, 5, padding=2, padding_mode="reflect"),
        nn.PReLU(),
        nn.Conv2d(12, 9, 3, padding=1, padding_mode="circular"),
        nn.PixelShuffle(3),
    )

    def charbonnier(model, batch):
        small, large = batch
        rough = F.interpolate(small, scale_factor=3, mode="bicubic", align_corners=False)
        return ((model(small) + rough - large).square() + 1e-6).sqrt().mean()

    return trained(lambda batch: charbonnier(model, batch), model), (
        torch.rand(4, 1, 6, 6),
        torch.rand(4, 1, 18, 18),
    )


@FAMILY.add("spatial transformer", "grid sample")
def spatial_transformer():
    locate, head = nn.Sequential(nn.Flatten(), nn.Linear(64, 6)), nn.Linear(64, 3)
    nn.init.zeros_(locate[1].weight)
    with torch.no_grad():
        locate[1].bias.copy_(torch.tensor([1.0, 0, 0, 0, 1, 0]))

    def loss_of(batch):
        x, y = batch
        grid = F.affine_grid(locate(x).view(-1, 2, 3), x.shape, align_corners=False)
        return F.cross_entropy(head(F.grid_sample(x, grid, align_corners=False).flatten(1)), y)

    return trained(loss_of, locate, head), (torch.randn(6, 1, 8, 8), torch.randint(0, 3, (6,)))


@FAMILY.add("pool", "unpool")
def segnet_with_unpooling():
    down, up = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(6, 2, 3, padding=1)
    pool, unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def loss_of(x):
        hidden, where = pool(F.relu(down(x)))
        return F.binary_cross_entropy_with_logits(up(unpool(hidden, where)), x.sigmoid())

    return trained(loss_of, down, up), torch.randn(4, 2, 8, 8)


@FAMILY.add("style transfer", "hooks", "input gradient")
def style_transfer_by_gram_matrices():
    trunk = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 8, 3, padding=1), nn.ReLU()
    ).requires_grad_(False)
    image = nn.Parameter(torch.rand(1, 3, 12, 12))
    optimizer = torch.optim.Adam([image], lr=0.05)

    def features(x):
        found = []
        for layer in trunk:
            x = layer(x)
            if isinstance(layer, nn.ReLU):
                found.append(x)
        return found

    def gram(x):
        flat = x.flatten(2)
        return flat @ flat.mT / flat.shape[-1]

    def step(batch):
        content, style = batch
        with torch.no_grad():
            wanted, grams = features(content), [gram(f) for f in features(style)]
        optimizer.zero_grad()
        found = features(image)
        loss = F.mse_loss(found[-1], wanted[-1])
        for one, target in zip(found, grams, strict=True):
            loss = loss + 10 * F.mse_loss(gram(one), target)
        loss = loss + 1e-3 * (
            (image[..., 1:] - image[..., :-1]).abs().mean()
            + (image[..., 1:, :] - image[..., :-1, :]).abs().mean()
        )
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            image.clamp_(0, 1)
        return loss.detach()

    return step, (torch.rand(1, 3, 12, 12), torch.rand(1, 3, 12, 12))
