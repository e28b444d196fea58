"""Code that checks something and raises; in a module whose assertions pytest leaves as they are."""

from __future__ import annotations

import torch
from torch import nn

from frontends.steps import batch, net, sgd


def checked():
    model = net()
    optimizer = sgd(model)

    def step(x):
        loss = model(x).square().mean()
        assert not torch.isnan(loss), "no number"
        torch._assert(torch.isfinite(loss), "not finite")
        if (loss > 1e6).any():
            raise ValueError(f"the loss {loss} is too large")
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, batch()


def asserts(t):
    assert t


def asserts_not(t):
    assert not t, "a message"


def raises(t):
    if t:
        raise ValueError(f"bad {t}")


def raises_else(t):
    if t:
        value = 1
    else:
        message = "bad" + str(t)
        raise ValueError(message)
    return value


def raises_in_a_loop(t):
    for _ in range(2):
        if t:
            raise ValueError
    return 1


def raises_of_two(t):
    if t or len("abc") > 5:
        raise ValueError


def raises_one_of_two_errors(t):
    if t:
        if len("abc") > 5:
            raise ValueError
        raise TypeError


def chooses(t):
    return 1 if t else 2


def returns(t):
    if t:
        return 1
    raise ValueError


def raises_sometimes(t):
    if t and len("abc") > 5:
        raise ValueError


def raises_or_returns(t):
    if t:
        if len("abc") > 5:
            return 1
        raise ValueError
    return 2


def converts(t):
    if bool(t):
        raise ValueError


def keeps(t):
    return not t
