"""Modes that a step is called in."""

from __future__ import annotations

import contextlib

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from runtime.changes import everywhere

# -- modes


def enters(name, make):
    def change(stack):
        stack.enter_context(make())

    change.__name__ = name
    everywhere(change)


class HalvesTanh(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return found * 0.5 if func is torch.tanh else found


class HalvesTanhOps(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return found * 0.5 if func is torch.ops.aten.tanh.default else found


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    yield
    torch.set_default_dtype(before)


enters("no_grad_around_the_call", torch.no_grad)
enters("inference_mode_around_the_call", torch.inference_mode)
enters("autocast_around_the_call", lambda: torch.autocast("cpu", torch.bfloat16, cache_enabled=False))
enters("default_dtype_changed", lambda: default_dtype(torch.float64))
enters("default_device_changed", lambda: torch.device("meta"))
enters("function_mode_around_the_call", HalvesTanh)
enters("dispatch_mode_around_the_call", HalvesTanhOps)
enters("anomaly_detection_on", lambda: torch.autograd.set_detect_anomaly(True, check_nan=False))
enters(
    "saved_tensors_hooks_around_the_call",
    lambda: torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved * 2.0),
)
enters("attention_kernels_off", lambda: sdpa_kernel(SDPBackend.MATH))
