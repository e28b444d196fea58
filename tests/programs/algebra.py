"""Linear algebra, complex numbers, derivatives of derivatives, solvers unrolled, fields and equations."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family, descend, descending, trained

FAMILY = Family("algebra")


def tanh_net(*sizes):
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


@FAMILY.add("linalg", "cholesky")
def gaussian_process_marginal_likelihood():
    embed, noise, scale = tanh_net(3, 6, 2), nn.Parameter(torch.tensor(-1.0)), nn.Parameter(torch.zeros(2))

    def loss_of(batch):
        x, y = batch
        z = embed(x) * scale.exp()
        covariance = torch.exp(-torch.cdist(z, z).square() / 2) + noise.exp() * torch.eye(len(x))
        factor = torch.linalg.cholesky(covariance)
        alpha = torch.cholesky_solve(y.unsqueeze(1), factor).squeeze(1)
        return 0.5 * y @ alpha + factor.diagonal().log().sum() + 0.5 * len(x) * math.log(2 * math.pi)

    return trained(loss_of, embed, noise, scale), (torch.randn(16, 3), torch.randn(16))


@FAMILY.add("linalg", "qr", "svd", "eigh", "det")
def decompositions():
    layer = nn.Linear(5, 5)

    def loss_of(x):
        h = layer(x)
        _, r = torch.linalg.qr(h)
        values = torch.linalg.svdvals(h)
        spectrum, vectors = torch.linalg.eigh(h.mT @ h + 5 * torch.eye(5))
        sign, logabs = torch.linalg.slogdet(h.mT @ h + torch.eye(5))
        inverse = torch.linalg.inv(h.mT @ h + 3 * torch.eye(5))
        lower = torch.linalg.solve_triangular(r.mT + 3 * torch.eye(5), h.mT, upper=False)
        return (
            r.abs().mean()
            + values.sum() * 0.01
            + spectrum.log().mean()
            + vectors.abs().mean()
            + (sign * logabs).mean()
            + inverse.diagonal(dim1=-2, dim2=-1).sum()
            + lower.square().mean()
        )

    return trained(loss_of, layer), torch.randn(3, 9, 5)


@FAMILY.add("linalg", "matrix_exp", "data dependent bytes")
def flow_of_a_linear_system():
    generator = nn.Parameter(torch.randn(4, 4) * 0.3)
    optimizer = torch.optim.Adam([generator], lr=0.01)

    def step(batch):
        start, times, found = batch
        moved = torch.linalg.matrix_exp(times.view(-1, 1, 1) * generator) @ start.unsqueeze(-1)
        return descend(
            optimizer,
            (moved.squeeze(-1) - found).square().mean()
            + torch.linalg.matrix_power(generator, 3).norm() * 1e-3,
            clears_first=True,
        )

    return step, (torch.randn(6, 4), torch.rand(6), torch.randn(6, 4))


@FAMILY.add("complex", "fft")
def fourier_neural_operator():
    lift, project = nn.Conv1d(1, 6, 1), nn.Conv1d(6, 1, 1)
    weights = nn.ParameterList(nn.Parameter(torch.randn(6, 6, 5, dtype=torch.cfloat) * 0.1) for _ in range(2))
    bypass = nn.ModuleList(nn.Conv1d(6, 6, 1) for _ in range(2))

    def loss_of(batch):
        x, y = batch
        h = lift(x)
        for weight, skip in zip(weights, bypass, strict=True):
            spectrum = torch.fft.rfft(h)
            mixed = torch.zeros_like(spectrum)
            mixed[..., :5] = torch.einsum("bim,iom->bom", spectrum[..., :5], weight)
            h = F.gelu(torch.fft.irfft(mixed, n=h.shape[-1]) + skip(h))
        return F.mse_loss(project(h), y)

    return trained(loss_of, lift, project, weights, bypass), (torch.randn(4, 1, 24), torch.randn(4, 1, 24))


@FAMILY.add("spectrogram", "stft")
def spectral_loss_of_a_filter():
    kernel = nn.Parameter(torch.randn(1, 1, 9) * 0.2)
    window = torch.hann_window(16)

    def spectrum(wave):
        return torch.stft(wave, 16, hop_length=8, window=window, return_complex=True).abs().clamp(min=1e-5)

    def loss_of(batch):
        noisy, clean = batch
        wave = F.conv1d(noisy.unsqueeze(1), kernel, padding=4).squeeze(1)
        a, b = spectrum(wave), spectrum(clean)
        return (a.log() - b.log()).abs().mean() + torch.linalg.norm(a - b) / torch.linalg.norm(b)

    return trained(loss_of, kernel), (torch.randn(3, 64), torch.randn(3, 64))


@FAMILY.add("torch.func", "jacrev", "hessian")
def jacobian_penalty_by_transforms():
    model = tanh_net(3, 8, 2)

    def loss_of(x):
        jacobian = torch.func.vmap(torch.func.jacrev(model))(x)
        curvature = torch.func.vmap(torch.func.hessian(lambda one: model(one).sum()))(x)
        return model(x).square().mean() + jacobian.square().mean() + 0.1 * curvature.square().mean()

    return trained(loss_of, model), torch.randn(12, 3)


@FAMILY.add("torch.func", "stack_module_state", "ensemble")
def ensemble_by_vmap():
    members = [tanh_net(4, 6, 1) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(members)
    skeleton = tanh_net(4, 6, 1).to("meta")
    optimizer = torch.optim.Adam(parameters.values())

    def one(p, b, x):
        return torch.func.functional_call(skeleton, (p, b), (x,))

    def loss_of(batch):
        x, y = batch
        found = torch.func.vmap(one, in_dims=(0, 0, None))(parameters, buffers, x)
        return (found - y).square().mean() - 0.01 * found.var(0).mean()

    return descending(optimizer, loss_of, clears_first=True), (torch.randn(20, 4), torch.randn(20, 1))


@FAMILY.add("torch.func", "jvp", "forward mode")
def directional_derivatives_forward():
    model = tanh_net(3, 8, 1)

    def loss_of(batch):
        x, direction = batch
        value, slope = torch.func.jvp(model, (x,), (direction,))
        return value.square().mean() + slope.square().mean()

    return trained(loss_of, model), (torch.randn(16, 3), torch.randn(16, 3))
