"""Generative models: adversaries, variational bounds, flows, diffusion, energies."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family, descend, descending

FAMILY = Family("generative")


def net(*sizes, last=None):
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.LeakyReLU(0.2))]
    return nn.Sequential(*layers[:-1], *([last] if last else []))


@FAMILY.add("gan", "two optimizers")
def adversarial_pair():
    generator, critic = net(4, 12, 6), net(6, 12, 1)
    for_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    for_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()

    def step(real):
        noise = torch.randn(len(real), 4)
        fake = generator(noise)
        for_critic.zero_grad()
        on_real, on_fake = critic(real), critic(fake.detach())
        loss_c = criterion(on_real, torch.ones_like(on_real)) + criterion(on_fake, torch.zeros_like(on_fake))
        loss_c.backward()
        for_critic.step()
        for_generator.zero_grad()
        again = critic(fake)
        loss_g = criterion(again, torch.ones_like(again))
        loss_g.backward()
        for_generator.step()
        return loss_c.item(), loss_g.item()

    return step, torch.randn(32, 6)


@FAMILY.add("gan", "convolution", "freeze", "hinge")
def conditional_convolutional_gan():
    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.label = nn.Embedding(3, 4)
            self.layers = nn.Sequential(
                nn.ConvTranspose2d(8, 8, 3, 1, 0),
                nn.BatchNorm2d(8),
                nn.ReLU(True),
                nn.ConvTranspose2d(8, 1, 4, 2, 1),
                nn.Tanh(),
            )

        def forward(self, noise, labels):
            return self.layers(torch.cat([noise, self.label(labels)], 1)[..., None, None])

    generator = Generator()
    critic, project = (
        nn.Sequential(nn.Conv2d(1, 6, 3, 2, 1), nn.LeakyReLU(0.2, inplace=True), nn.Flatten()),
        nn.Embedding(3, 54),
    )
    judges = nn.ModuleList([critic, project])
    d_optimizer, g_optimizer = (
        torch.optim.RMSprop(judges.parameters(), lr=5e-5),
        torch.optim.RMSprop(generator.parameters(), lr=5e-5),
    )

    def score(images, labels):
        features = critic(images)
        return (features * project(labels)).sum(1)

    def step(images, real_label=1.0):
        pictures, labels = images
        judges.requires_grad_(True)
        fake = generator(torch.randn(len(pictures), 4), labels).detach()
        d_loss = (
            F.relu(real_label - score(pictures, labels)).mean()
            + F.relu(real_label + score(fake, labels)).mean()
        )
        descend(d_optimizer, d_loss, clears_first=True)
        judges.requires_grad_(False)
        g_loss = -score(generator(torch.randn(len(pictures), 4), labels), labels).mean()
        descend(g_optimizer, g_loss, clears_first=True)
        return {"d": d_loss.detach(), "g": g_loss.detach()}

    return step, (torch.randn(6, 1, 6, 6), torch.randint(0, 3, (6,)))


@FAMILY.add("cycle", "shared optimizer", "chain")
def cycle_consistent_translation():
    there, back = net(4, 10, 4), net(4, 10, 4)
    judge_a, judge_b = net(4, 8, 1), net(4, 8, 1)
    import itertools

    for_maps = torch.optim.Adam(itertools.chain(there.parameters(), back.parameters()), lr=1e-3)
    for_judges = torch.optim.Adam(
        [{"params": judge_a.parameters()}, {"params": judge_b.parameters(), "lr": 2e-3}], lr=1e-3
    )

    def step(batch):
        a, b = batch["a"], batch["b"]
        fake_b, fake_a = there(a), back(b)
        cycle = F.l1_loss(back(fake_b), a) + F.l1_loss(there(fake_a), b)
        fooled = (judge_a(fake_a) - 1).square().mean() + (judge_b(fake_b) - 1).square().mean()
        for_maps.zero_grad()
        (fooled + 10 * cycle).backward()
        for_maps.step()
        judged = 0
        for judge, real, fake in ((judge_a, a, fake_a), (judge_b, b, fake_b)):
            judged = judged + (judge(real) - 1).square().mean() + judge(fake.detach()).square().mean()
        descend(for_judges, judged, clears_first=True)
        return cycle.detach(), judged.detach()

    return step, {"a": torch.randn(20, 4), "b": torch.randn(20, 4)}


@FAMILY.add("vae", "random")
def variational_autoencoder():
    encode, decode = net(10, 16, 6), net(3, 16, 10)
    optimizer = torch.optim.Adam([*encode.parameters(), *decode.parameters()], lr=1e-3)

    def step(x):
        mean, log_variance = encode(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        reconstruction = F.binary_cross_entropy_with_logits(decode(z), x, reduction="sum")
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        loss = (reconstruction + divergence) / len(x)
        descend(optimizer, loss, clears_first=True)
        return {"loss": loss.detach(), "kl": divergence.detach()}

    return step, torch.rand(32, 10).round()


@FAMILY.add("vae", "torch.distributions")
def variational_autoencoder_with_distributions():
    from torch.distributions import Independent, Normal, kl_divergence

    encode, decode = net(6, 12, 6), net(3, 12, 6)
    optimizer = torch.optim.Adam([*encode.parameters(), *decode.parameters()])

    def loss_of(x):
        mean, spread = encode(x).chunk(2, -1)
        posterior = Independent(
            Normal(mean, F.softplus(spread) + 1e-3, validate_args=False), 1, validate_args=False
        )
        prior = Independent(
            Normal(torch.zeros(3), torch.ones(3), validate_args=False), 1, validate_args=False
        )
        z = posterior.rsample()
        likelihood = Normal(decode(z), 0.5, validate_args=False).log_prob(x).sum(-1)
        return (kl_divergence(posterior, prior.expand(mean.shape[:1])) - likelihood).mean()

    return descending(optimizer, loss_of, clears_first=True), torch.randn(32, 6)


@FAMILY.add("vae", "gumbel", "random")
def categorical_autoencoder_by_gumbel_softmax():
    encode, decode = net(8, 16, 12), net(12, 16, 8)
    optimizer = torch.optim.Adam([*encode.parameters(), *decode.parameters()])

    def loss_of(batch):
        x, temperature = batch
        logits = encode(x).view(-1, 3, 4)
        soft = F.softmax(
            (logits - torch.log(-torch.log(torch.rand_like(logits) + 1e-10) + 1e-10)) / temperature, -1
        )
        hard = torch.zeros_like(soft).scatter(-1, soft.argmax(-1, keepdim=True), 1.0)
        z = hard - soft.detach() + soft
        q = logits.softmax(-1)
        return F.mse_loss(decode(z.flatten(1)), x) + (q * (q * 4 + 1e-9).log()).sum((1, 2)).mean()

    return descending(optimizer, loss_of, clears_first=True), (torch.randn(32, 8), torch.tensor(0.8))


@FAMILY.add("autoencoder", "noise", "sparse")
def denoising_sparse_autoencoder():
    encode, decode = nn.Linear(12, 20), nn.Linear(20, 12, bias=False)
    decode.weight = nn.Parameter(encode.weight.detach().T.clone())
    optimizer = torch.optim.Adam([*encode.parameters(), *decode.parameters()])

    def step(x):
        code = torch.sigmoid(encode(F.dropout(x, 0.3)))
        active = code.mean(0)
        sparse = (0.1 * torch.log(0.1 / active) + 0.9 * torch.log(0.9 / (1 - active))).sum()
        top = code * (code >= code.topk(5, 1).values[:, -1:])
        loss = F.mse_loss(decode(top), x) + 0.01 * sparse
        descend(optimizer, loss, clears_first=True)
        with torch.no_grad():
            decode.weight.div_(decode.weight.norm(dim=0, keepdim=True))
        return loss.detach()

    return step, torch.rand(40, 12)


class Coupling(nn.Module):
    def __init__(self, width, flip):
        super().__init__()
        self.net, self.flip = net(width // 2, 10, width), flip

    def forward(self, x):
        a, b = x.chunk(2, 1)
        if self.flip:
            a, b = b, a
        scale, shift = self.net(a).chunk(2, 1)
        scale = torch.tanh(scale)
        b = b * torch.exp(scale) + shift
        return torch.cat([b, a] if self.flip else [a, b], 1), scale.sum(1)


@FAMILY.add("flow")
def real_nvp():
    layers = nn.ModuleList(Coupling(6, bool(i % 2)) for i in range(4))
    mix = nn.Parameter(torch.linalg.qr(torch.randn(6, 6))[0])
    optimizer = torch.optim.Adam([*layers.parameters(), mix], lr=1e-3)

    def step(x):
        total = x.new_zeros(len(x))
        for layer in layers:
            x, logdet = layer(x)
            total = total + logdet
        x, total = x @ mix, total + torch.linalg.slogdet(mix)[1]
        likelihood = -0.5 * (x.square() + math.log(2 * math.pi)).sum(1) + total
        loss = -likelihood.mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(layers.parameters(), 5.0, norm_type=float("inf"))
        optimizer.step()
        return loss.detach()

    return step, torch.randn(40, 6)


@FAMILY.add("flow", "masked")
def masked_autoregressive_density():
    class Masked(nn.Linear):
        def __init__(self, inside, outside, mask):
            super().__init__(inside, outside)
            self.register_buffer("mask", mask)

        def forward(self, x):
            return F.linear(x, self.weight * self.mask, self.bias)

    degrees = torch.arange(12) % 4
    first = Masked(5, 12, (degrees[:, None] >= torch.arange(5)[None]).float())
    last = Masked(12, 10, (torch.arange(5).repeat(2)[:, None] > degrees[None]).float())
    optimizer = torch.optim.Adam([*first.parameters(), *last.parameters()])

    def loss_of(x):
        mean, log_scale = last(torch.relu(first(x))).chunk(2, 1)
        return (0.5 * ((x - mean) * torch.exp(-log_scale)).square() + log_scale).sum(1).mean()

    return descending(optimizer, loss_of, clears_first=True), torch.randn(40, 5)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8))
        self.enter, self.middle, self.leave = (
            nn.Conv2d(1, 8, 3, padding=1),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.Conv2d(8, 1, 3, padding=1),
        )
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x, t):
        frequency = torch.exp(-math.log(1000) * torch.arange(4) / 4)
        angle = t[:, None].float() * frequency
        when = self.time(torch.cat([angle.sin(), angle.cos()], 1))
        h = F.silu(self.norm(self.enter(x))) + when[:, :, None, None]
        return self.leave(F.silu(self.middle(h)) + h)


@FAMILY.add("diffusion", "exponential average")
def diffusion_with_levels_from_the_batch_and_an_average():
    model, average = Denoiser(), Denoiser().requires_grad_(False)
    average.load_state_dict(model.state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)

    def step(batch):
        x, noise, sigma = batch
        scale = 1 / (sigma**2 + 0.25).sqrt()
        found = model((x + sigma * noise) * scale, sigma.flatten().log() / 4)
        target = (x * sigma - noise * 0.25) * scale
        loss = ((found - target).square().mean((1, 2, 3)) / sigma.flatten()).mean()
        descend(optimizer, loss, clears_first=True)
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.01)
        return loss.detach()

    return step, (torch.randn(6, 1, 8, 8), torch.randn(6, 1, 8, 8), torch.rand(6, 1, 1, 1) + 0.1)


@FAMILY.add("flow matching", "random")
def flow_matching():
    field = net(5, 16, 16, 4)
    optimizer = torch.optim.Adam(field.parameters())

    def loss_of(x):
        time, start = torch.rand(len(x), 1), torch.randn_like(x)
        place = torch.lerp(start, x, time)
        return (field(torch.cat([place, time], 1)) - (x - start)).square().mean()

    return descending(optimizer, loss_of, clears_first=True), torch.randn(40, 4)


@FAMILY.add("boltzmann", "by hand", "random")
def restricted_boltzmann_machine_without_autograd():
    weight, visible, hidden = torch.randn(8, 5) * 0.1, torch.zeros(8), torch.zeros(5)

    @torch.no_grad()
    def step(v):
        on = torch.sigmoid(v @ weight + hidden)
        sampled = torch.bernoulli(on)
        again = torch.sigmoid(sampled @ weight.T + visible)
        back = torch.sigmoid(again @ weight + hidden)
        weight.add_((v.T @ on - again.T @ back) / len(v), alpha=0.1)
        visible.add_((v - again).mean(0), alpha=0.1)
        hidden.add_((on - back).mean(0), alpha=0.1)
        return (v - again).square().mean()

    return step, torch.rand(30, 8).round()


@FAMILY.add("random state", "fork_rng", "dropout")
def consistency_of_two_views_with_the_same_masks():
    """One network sees a view and a noisy view with the same dropout masks; what it draws otherwise goes on as before."""
    network = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 24), nn.Dropout(0.1))
    optimizer = torch.optim.AdamW(network.parameters())

    def loss_of(batch):
        state = torch.random.get_rng_state()
        first = network(batch)
        with torch.random.fork_rng(devices=[]):
            noisy = batch + 0.1 * torch.randn_like(batch)
            torch.random.set_rng_state(state)
            second = network(noisy)
        return F.mse_loss(second, first.detach()) + (first * torch.rand_like(first)).square().mean()

    return descending(optimizer, loss_of, clears_first=True), torch.randn(64, 6)
