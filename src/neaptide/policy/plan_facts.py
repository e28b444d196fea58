"""What a plan file says of the place and the step that it was made for."""

from __future__ import annotations

import platform

import torch

from neaptide.frontends.guards.fact_words import described
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.version import VERSION


def versions() -> dict[str, str]:
    """Versions of what a prediction or a measurement depends on."""
    return {
        "neaptide": VERSION,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def described_signature(captured: CapturedStep) -> tuple[tuple[str, str], ...]:
    """The facts that a call must agree on, as text for a plan file; those that only this process knows left out."""
    signature = captured.signature
    facts = (*signature.named_batch(), *signature.state, *signature.hyper_parameters, *signature.modes)
    found = {"the batch": signature.structure()}
    for name, fact in facts:
        # Each program of a step says for itself which sizes it is for.
        text, known = described(fact), found.get(name)
        found[name] = text if known in (None, text) else f"{known}; {text}"
    return tuple(found.items())
