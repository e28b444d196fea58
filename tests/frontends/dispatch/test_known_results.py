"""A rehearsal takes results from the run before; what they are must be what the kernels would have said."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from frontends.steps import batch_norm, dropout, lstm, tied
from neaptide.errors import CaptureError
from neaptide.frontends.dispatch import recorder
from neaptide.frontends.recording.same_twice import shown_of, tensors_of
from neaptide.frontends.torch_step import capture_step
from neaptide.frontends.trace import rehearsal
from together import together


def of(compute, *shape):
    """A step of one weight."""
    weight = nn.Parameter(torch.randn(*(shape or (4, 6))))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step(x):
        loss = compute(weight, x)
        loss.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, torch.randn(4, 6)


def written_views(w, x):
    y = w * x
    y[1:3].mul_(2)
    y.t()[0].add_(x[:, 0])
    return y


def turned_in_place(w, x):
    y = (w * x).clone()
    y.t_().neg_()
    y.unsqueeze_(0).add_(3)
    return y @ x


def written_literals(w, x):
    scale = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    scale.mul_(2)
    mask = torch.zeros(6)
    mask[2] = 1.0
    return w * x * scale + mask * scale[0].item()


def several_results(w, x):
    values, places = torch.sort(w * x, dim=1)
    left, right = values.split(3, dim=1)
    mean, var = torch.var_mean(values, dim=0)
    return left * right + places[:, :3] + mean[:3] * var[:3]


def strides(w, x):
    y = (w.t() * x.t()).exp()
    return y.reshape(-1) * y.t().reshape(-1)


def written_out(w, x):
    out = torch.empty(6, 4)
    with torch.no_grad():
        torch.mul(x.t(), 2, out=out)
    return w * out.t()


def branches_on_facts(w, x):
    y = F.gelu((w * x).t())
    return y.view(-1) if y.is_contiguous() else y.t().contiguous().view(-1) * 2


def narrow_types(w, x):
    return (w.half() * x.half()).float() + torch.arange(6) + torch.full((6,), 2, dtype=torch.int8)


def complex_views(w, x):
    z = torch.complex(w, x)
    return (z.conj() * z).real + torch.view_as_real(z.conj().resolve_conj())[..., 0]


COMPUTED = [
    *(written_views, turned_in_place, written_literals, several_results, strides, written_out),
    *(branches_on_facts, narrow_types, complex_views),
]
STEPS = {compute.__name__: lambda compute=compute: of(compute) for compute in COMPUTED} | {
    made.__name__: made for made in (batch_norm, dropout, lstm, tied)
}


@pytest.fixture
def rehearsals(monkeypatch):
    """The listings of each rehearsal and of the run before."""
    found = []
    rehearse = rehearsal.rehearse_step

    def noted(*args):
        listing, left_out = rehearse(*args)
        found.append((args[-1], listing, left_out))
        return listing, left_out

    monkeypatch.setattr(rehearsal, "rehearse_step", noted)
    return found


@together("name", STEPS)
def test_a_rehearsal_sees_what_the_trace_saw(name, rehearsals):
    rehearsals.clear()
    torch.manual_seed(0)
    step, batch = STEPS[name]()
    capture_step(step, (batch,))
    for before, listing, left_out in rehearsals:
        phases = {"forward", "backward", "optimizer"} - left_out
        assert before.difference(listing, phases) is None
        shown = [
            [list(map(shown_of, tensors_of(call.result))) for call in run.calls if call.phase == "forward"]
            for run in (before, listing)
        ]
        assert shown[0] == shown[1]
        assert shown[0]
    assert len(rehearsals) <= 1  # a second one is the sign of a difference


def test_some_steps_are_rehearsed(rehearsals):
    for make in STEPS.values():
        step, batch = make()
        capture_step(step, (batch,))
    assert len(rehearsals) >= len(COMPUTED)


def test_known_kernels_are_not_asked_again(monkeypatch):
    asked = []
    run = recorder._run
    monkeypatch.setattr(
        recorder, "_run", lambda func, args, kwargs: asked.append(func) or run(func, args, kwargs)
    )
    step, batch = of(lambda w, x: (w * x).erf().neg_().floor())
    capture_step(step, (batch,))
    for func in (torch.ops.aten.erf.default, torch.ops.aten.neg_.default, torch.ops.aten.floor.default):
        assert asked.count(func) == 1


class Library:
    """Counts where neaptide does not look: in a closure of a function made by C."""

    def __init__(self):
        self.count = iter(range(3, 1000)).__next__


def test_a_literal_of_another_length_is_no_known_result():
    library = Library()
    step, batch = of(lambda w, x: (w * x).sum() + torch.tensor([0.5] * library.count()).sin().exp().sum())
    with pytest.raises(CaptureError, match="another one at each call"):
        capture_step(step, (batch,))
