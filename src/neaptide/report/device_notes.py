"""What a reader should know about numbers for a kind of device: what they leave out, and whose kernels they are of."""

from __future__ import annotations

from typing import Final

from neaptide.cost.presets import PRESETS

_NOT_COUNTED: Final = {
    "cpu": (
        "what the process holds outside the step: the interpreter, libraries, data loaders",
        "fragmentation and rounding of the allocator",
        "scratch that oneDNN and BLAS take from the system past PyTorch's allocator",
    ),
    "cuda": (
        "the CUDA context and loaded kernels; what a preset keeps back for them is off its usable bytes",
        "workspaces of cuDNN and cuBLAS",
        "rounding and fragmentation of the caching allocator",
    ),
}


def not_counted(kind: str) -> tuple[str, ...]:
    """What no number for a kind of device contains."""
    return _NOT_COUNTED.get(kind, _NOT_COUNTED["cuda"])


def predicted_only(device: str, captured_on: str) -> str:
    """The warning that a step was captured with other kernels than it will run with; empty when it was not, or is not known.

    `device` is the name of a preset, or anything else for the machine that the step was captured on.
    """
    preset = PRESETS.get(device)
    if preset is None or not captured_on or preset.kind == captured_on:
        return ""
    shown = captured_on.upper() if captured_on in ("cpu", "cuda") else captured_on
    attention = " (attention takes the CPU path)" if captured_on == "cpu" else ""
    return f"Predicted only: captured with {shown} kernels{attention}; {device} may run others."
