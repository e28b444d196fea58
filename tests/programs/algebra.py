"""Linear algebra, complex numbers, derivatives of derivatives, solvers unrolled, fields and equations."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family

FAMILY = Family("algebra")


def tanh_net(*sizes):
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


def optimize(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


@FAMILY.add("linalg", "cholesky")
def gaussian_process_marginal_likelihood():
    embed, noise, scale = tanh_net(3, 6, 2), nn.Parameter(torch.tensor(-1.0)), nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.Adam([*embed.parameters(), noise, scale], lr=0.05)

    def step(batch):
        x, y = batch
        z = embed(x) * scale.exp()
        covariance = torch.exp(-torch.cdist(z, z).square() / 2) + noise.exp() * torch.eye(len(x))
        factor = torch.linalg.cholesky(covariance)
        alpha = torch.cholesky_solve(y.unsqueeze(1), factor).squeeze(1)
        loss = 0.5 * y @ alpha + factor.diagonal().log().sum() + 0.5 * len(x) * math.log(2 * math.pi)
        return optimize(loss, optimizer)

    return step, (torch.randn(16, 3), torch.randn(16))


@FAMILY.add("linalg", "solve", "lstsq")
def differentiable_ridge_regression():
    embed, penalty = tanh_net(4, 8, 5), nn.Parameter(torch.tensor(0.1))
    optimizer = torch.optim.SGD([*embed.parameters(), penalty], lr=0.05)

    def step(batch):
        support, target, query, wanted = batch
        a = embed(support)
        weights = torch.linalg.solve(a.mT @ a + penalty.square() * torch.eye(5), a.mT @ target)
        return optimize(F.mse_loss(embed(query) @ weights, wanted), optimizer)

    return step, (torch.randn(3, 12, 4), torch.randn(3, 12, 2), torch.randn(3, 20, 4), torch.randn(3, 20, 2))


@FAMILY.add("linalg", "qr", "svd", "eigh", "det")
def decompositions():
    layer = nn.Linear(5, 5)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)

    def step(x):
        h = layer(x)
        _, r = torch.linalg.qr(h)
        values = torch.linalg.svdvals(h)
        spectrum, vectors = torch.linalg.eigh(h.mT @ h + 5 * torch.eye(5))
        sign, logabs = torch.linalg.slogdet(h.mT @ h + torch.eye(5))
        inverse = torch.linalg.inv(h.mT @ h + 3 * torch.eye(5))
        lower = torch.linalg.solve_triangular(r.mT + 3 * torch.eye(5), h.mT, upper=False)
        loss = (
            r.abs().mean()
            + values.sum() * 0.01
            + spectrum.log().mean()
            + vectors.abs().mean()
            + (sign * logabs).mean()
            + inverse.diagonal(dim1=-2, dim2=-1).sum()
            + lower.square().mean()
        )
        return optimize(loss, optimizer)

    return step, torch.randn(3, 9, 5)


@FAMILY.add("linalg", "matrix_exp", "data dependent bytes")
def flow_of_a_linear_system():
    generator = nn.Parameter(torch.randn(4, 4) * 0.3)
    optimizer = torch.optim.Adam([generator], lr=0.01)

    def step(batch):
        start, times, found = batch
        moved = torch.linalg.matrix_exp(times.view(-1, 1, 1) * generator) @ start.unsqueeze(-1)
        return optimize(
            (moved.squeeze(-1) - found).square().mean()
            + torch.linalg.matrix_power(generator, 3).norm() * 1e-3,
            optimizer,
        )

    return step, (torch.randn(6, 4), torch.rand(6), torch.randn(6, 4))


@FAMILY.add("complex", "fft")
def fourier_neural_operator():
    lift, project = nn.Conv1d(1, 6, 1), nn.Conv1d(6, 1, 1)
    weights = nn.ParameterList(nn.Parameter(torch.randn(6, 6, 5, dtype=torch.cfloat) * 0.1) for _ in range(2))
    bypass = nn.ModuleList(nn.Conv1d(6, 6, 1) for _ in range(2))
    optimizer = torch.optim.AdamW(
        [*lift.parameters(), *project.parameters(), *weights, *bypass.parameters()], lr=1e-3
    )

    def step(batch):
        x, y = batch
        h = lift(x)
        for weight, skip in zip(weights, bypass, strict=True):
            spectrum = torch.fft.rfft(h)
            mixed = torch.zeros_like(spectrum)
            mixed[..., :5] = torch.einsum("bim,iom->bom", spectrum[..., :5], weight)
            h = F.gelu(torch.fft.irfft(mixed, n=h.shape[-1]) + skip(h))
        return optimize(F.mse_loss(project(h), y), optimizer)

    return step, (torch.randn(4, 1, 24), torch.randn(4, 1, 24))


@FAMILY.add("complex", "fft", "norm")
def complex_network_and_fourier_mixing():
    real, imaginary = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
    phase = nn.Parameter(torch.zeros(6))
    optimizer = torch.optim.SGD([*real.parameters(), *imaginary.parameters(), phase], lr=0.05)

    def step(x):
        z = torch.complex(real(x), imaginary(x)) * torch.exp(1j * phase)
        z = z / (1 + z.abs())
        mixed = torch.fft.fft2(z, norm="ortho")
        loss = (
            mixed.real.square().mean()
            + mixed.imag.abs().mean()
            + (z * z.conj()).real.mean()
            + torch.angle(z).cos().mean()
        )
        return optimize(loss, optimizer)

    return step, torch.randn(4, 8, 6)


@FAMILY.add("spectrogram", "stft")
def spectral_loss_of_a_filter():
    kernel = nn.Parameter(torch.randn(1, 1, 9) * 0.2)
    optimizer = torch.optim.Adam([kernel])
    window = torch.hann_window(16)

    def spectrum(wave):
        return torch.stft(wave, 16, hop_length=8, window=window, return_complex=True).abs().clamp(min=1e-5)

    def step(batch):
        noisy, clean = batch
        wave = F.conv1d(noisy.unsqueeze(1), kernel, padding=4).squeeze(1)
        a, b = spectrum(wave), spectrum(clean)
        return optimize(
            (a.log() - b.log()).abs().mean() + torch.linalg.norm(a - b) / torch.linalg.norm(b), optimizer
        )

    return step, (torch.randn(3, 64), torch.randn(3, 64))


@FAMILY.add("create_graph", "input gradient")
def physics_informed_heat_equation():
    field = tanh_net(2, 12, 12, 1)
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-3)

    def derivative(y, x):
        return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]

    def step(batch):
        inside, edge = batch
        points = inside.clone().requires_grad_(True)
        u = field(points)
        first = derivative(u, points)
        second = derivative(first[:, 0:1], points)[:, 0:1]
        residual = first[:, 1:2] - 0.1 * second
        return optimize(residual.square().mean() + field(edge).square().mean(), optimizer)

    return step, (torch.rand(24, 2), torch.rand(12, 2))


@FAMILY.add("create_graph", "score")
def sliced_score_matching():
    energy = tanh_net(3, 10, 1)
    optimizer = torch.optim.Adam(energy.parameters())

    def step(x):
        x = x.detach().requires_grad_()
        score = -torch.autograd.grad(energy(x).sum(), x, create_graph=True)[0]
        direction = torch.randn_like(x)
        along = torch.autograd.grad((score * direction).sum(), x, create_graph=True)[0]
        return optimize(((along * direction).sum(1) + 0.5 * score.square().sum(1)).mean(), optimizer)

    return step, torch.randn(20, 3)


@FAMILY.add("create_graph", "inner step")
def model_agnostic_meta_learning():
    first, bias, second = (
        nn.Parameter(torch.randn(10, 3) * 0.4),
        nn.Parameter(torch.zeros(10)),
        nn.Parameter(torch.randn(1, 10) * 0.3),
    )
    optimizer = torch.optim.Adam([first, bias, second], lr=1e-3)

    def predict(weights, x):
        a, b, c = weights
        return F.linear(torch.tanh(F.linear(x, a, b)), c)

    def step(tasks):
        total = 0.0
        for support, target, query, wanted in tasks:
            weights = (first, bias, second)
            for _ in range(2):
                inner = F.mse_loss(predict(weights, support), target)
                gradients = torch.autograd.grad(inner, weights, create_graph=True)
                weights = tuple(w - 0.1 * g for w, g in zip(weights, gradients, strict=True))
            total = total + F.mse_loss(predict(weights, query), wanted)
        return optimize(total / len(tasks), optimizer)

    return step, [
        (torch.randn(8, 3), torch.randn(8, 1), torch.randn(8, 3), torch.randn(8, 1)) for _ in range(2)
    ]


@FAMILY.add("torch.func", "functional_call", "vmap")
def per_sample_gradients_clipped():
    model = tanh_net(4, 8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of(parameters, x, y):
        return F.cross_entropy(
            torch.func.functional_call(model, parameters, (x.unsqueeze(0),)), y.unsqueeze(0)
        )

    def step(batch):
        parameters = {name: p.detach() for name, p in model.named_parameters()}
        each = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0, 0))(parameters, *batch)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()]).norm(dim=0)
        shrink = (0.5 / norms).clamp(max=1)
        for name, parameter in model.named_parameters():
            gradient = torch.einsum("b,b...->...", shrink, each[name])
            parameter.grad = (gradient + 0.01 * torch.randn_like(gradient)) / len(shrink)
        optimizer.step()
        optimizer.zero_grad()
        return norms.mean()

    return step, (torch.randn(10, 4), torch.randint(0, 2, (10,)))


@FAMILY.add("torch.func", "jacrev", "hessian")
def jacobian_penalty_by_transforms():
    model = tanh_net(3, 8, 2)
    optimizer = torch.optim.Adam(model.parameters())

    def step(x):
        jacobian = torch.func.vmap(torch.func.jacrev(model))(x)
        curvature = torch.func.vmap(torch.func.hessian(lambda one: model(one).sum()))(x)
        return optimize(
            model(x).square().mean() + jacobian.square().mean() + 0.1 * curvature.square().mean(), optimizer
        )

    return step, torch.randn(12, 3)


@FAMILY.add("torch.func", "stack_module_state", "ensemble")
def ensemble_by_vmap():
    members = [tanh_net(4, 6, 1) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(members)
    skeleton = tanh_net(4, 6, 1).to("meta")
    optimizer = torch.optim.Adam(parameters.values())

    def one(p, b, x):
        return torch.func.functional_call(skeleton, (p, b), (x,))

    def step(batch):
        x, y = batch
        found = torch.func.vmap(one, in_dims=(0, 0, None))(parameters, buffers, x)
        return optimize((found - y).square().mean() - 0.01 * found.var(0).mean(), optimizer)

    return step, (torch.randn(20, 4), torch.randn(20, 1))


@FAMILY.add("torch.func", "jvp", "forward mode")
def directional_derivatives_forward():
    model = tanh_net(3, 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        x, direction = batch
        value, slope = torch.func.jvp(model, (x,), (direction,))
        return optimize(value.square().mean() + slope.square().mean(), optimizer)

    return step, (torch.randn(16, 3), torch.randn(16, 3))


@FAMILY.add("ode", "loop")
def neural_ode_by_runge_kutta():
    field, head = tanh_net(4, 10, 4), nn.Linear(4, 2)
    optimizer = torch.optim.Adam([*field.parameters(), *head.parameters()])

    def step(batch):
        x, y = batch
        h = 0.25
        for _ in range(4):
            k1 = field(x)
            k2 = field(x + h / 2 * k1)
            k3 = field(x + h / 2 * k2)
            k4 = field(x + h * k3)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return optimize(F.cross_entropy(head(x), y), optimizer)

    return step, (torch.randn(40, 4), torch.randint(0, 2, (40,)))


@FAMILY.add("sde", "random", "loop")
def stochastic_differential_equation():
    drift, spread = tanh_net(2, 8, 1), nn.Parameter(torch.tensor(-1.0))
    optimizer = torch.optim.Adam([*drift.parameters(), spread])

    def step(prices):
        x, total = prices[:, :1], 0.0
        for i in range(1, prices.shape[1]):
            time = torch.full_like(x, i / prices.shape[1])
            x = x + 0.1 * drift(torch.cat([x, time], 1)) + spread.exp() * math.sqrt(0.1) * torch.randn_like(x)
            total = total + (x - prices[:, i : i + 1]).square().mean()
        return optimize(total, optimizer)

    return step, torch.randn(30, 6)


@FAMILY.add("equilibrium", "no_grad", "loop")
def deep_equilibrium_with_one_step_gradient():
    inject, recur, head = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3)
    nn.init.orthogonal_(recur.weight, gain=0.5)
    optimizer = torch.optim.SGD([*inject.parameters(), *recur.parameters(), *head.parameters()], lr=0.1)

    def step(batch):
        x, y = batch
        drive = inject(x)
        with torch.no_grad():
            z = torch.zeros_like(drive)
            for _ in range(12):
                z = torch.tanh(recur(z) + drive)
        z = torch.tanh(recur(z) + drive)
        return optimize(F.cross_entropy(head(z), y), optimizer)

    return step, (torch.randn(30, 4), torch.randint(0, 3, (30,)))


@FAMILY.add("implicit", "custom function")
def implicit_layer_with_its_own_backward():
    class FixedPoint(torch.autograd.Function):
        @staticmethod
        def forward(ctx, weight, drive):
            z = torch.zeros_like(drive)
            for _ in range(10):
                z = torch.tanh(z @ weight.mT + drive)
            ctx.save_for_backward(weight, z)
            return z

        @staticmethod
        def backward(ctx, gradient):
            weight, z = ctx.saved_tensors
            slope, u = 1 - z.square(), gradient
            for _ in range(10):
                u = gradient + (u * slope) @ weight
            inner = u * slope
            return inner.mT @ z, inner

    weight, enter = nn.Parameter(torch.randn(6, 6) * 0.1), nn.Linear(3, 6)
    optimizer = torch.optim.Adam([weight, *enter.parameters()])

    def step(x):
        return optimize(FixedPoint.apply(weight, enter(x)).square().mean(), optimizer)

    return step, torch.randn(20, 3)


@FAMILY.add("nerf", "volume rendering")
def radiance_field():
    field = nn.Sequential(nn.Linear(27, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-4)
    frequencies = 2.0 ** torch.arange(4)

    def encode(x):
        angles = (x.unsqueeze(-1) * frequencies).flatten(-2)
        return torch.cat([x, angles.sin(), angles.cos()], -1)

    def step(batch):
        origin, direction, color = batch
        depth = torch.linspace(2, 6, 9) + torch.rand(len(origin), 9) * 0.4
        found = field(encode(origin[:, None] + depth.unsqueeze(-1) * direction[:, None]))
        density, shade = F.relu(found[..., 3]), found[..., :3].sigmoid()
        gap = torch.cat([depth[:, 1:] - depth[:, :-1], torch.full_like(depth[:, :1], 1e3)], 1)
        opacity = 1 - torch.exp(-density * gap)
        through = torch.cumprod(torch.cat([torch.ones_like(opacity[:, :1]), 1 - opacity + 1e-10], 1), 1)[
            :, :-1
        ]
        return optimize(F.mse_loss(((opacity * through).unsqueeze(-1) * shade).sum(1), color), optimizer)

    return step, (torch.randn(12, 3), F.normalize(torch.randn(12, 3), dim=1), torch.rand(12, 3))


@FAMILY.add("siren", "hypernetwork", "bmm")
def sine_network_from_a_hypernetwork():
    codes = nn.Embedding(4, 5)
    hyper = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 2 * 8 + 8 + 8 * 1 + 1))
    optimizer = torch.optim.Adam([*codes.parameters(), *hyper.parameters()], lr=1e-4)

    def step(batch):
        which, places, values = batch
        made = hyper(codes(which))
        first, bias, last, shift = made.split([16, 8, 8, 1], 1)
        h = torch.sin(30 * (torch.bmm(places, first.view(-1, 2, 8)) + bias.unsqueeze(1)))
        return optimize(F.mse_loss(torch.bmm(h, last.unsqueeze(2)) + shift.unsqueeze(1), values), optimizer)

    return step, (torch.arange(4), torch.rand(4, 20, 2), torch.rand(4, 20, 1))


@FAMILY.add("hamiltonian", "create_graph", "symplectic")
def hamiltonian_network():
    energy = nn.Sequential(nn.Linear(2, 12), nn.Softplus(), nn.Linear(12, 1))
    optimizer = torch.optim.Adam(energy.parameters(), weight_decay=1e-4)

    def step(batch):
        state, moved = batch
        state = state.clone().requires_grad_()
        gradient = torch.autograd.grad(energy(state).sum(), state, create_graph=True)[0]
        flow = torch.stack([gradient[:, 1], -gradient[:, 0]], 1)
        return optimize(F.mse_loss(flow, moved), optimizer)

    return step, (torch.randn(24, 2), torch.randn(24, 2))
