"""Fused operations as functions: their bodies are traced, made functional, and compiled by Inductor.

A kernel is built once for each text of a body. What Inductor makes is kept on the disk by itself, for other processes.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, Final

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from neaptide.errors import LoweringError
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Named, Node, Ref
from neaptide.ir.values import Value
from neaptide.kernels import _torch_private as private
from neaptide.kernels.numbers import call_with_numbers
from neaptide.ops.fused import fused_body
from neaptide.symbolic.size_expr import SizeExpr

Kernel = Callable[[list[Any]], Sequence[torch.Tensor]]
"""Takes the operands in a list, which it empties, and returns the results."""

_KERNELS_KEPT: Final = 4096
_compiling = threading.RLock()  # Inductor compiles one graph at a time


def run_fused(text: str, operands: Sequence[Any]) -> Sequence[torch.Tensor]:
    """Run a fused operation. The first call of a body compiles it, which takes seconds."""
    return fused_kernel(text)(list(operands))


@lru_cache(_KERNELS_KEPT)
def fused_kernel(text: str) -> Kernel:
    """The kernel of a body.

    Raises:
        LoweringError: there is no compiler, or the kernel would lay out its results otherwise than the body says.
    """
    body = fused_body(text)
    if (reason := why_no_compiler(_device(body))) is not None:
        raise LoweringError(
            "a fused operation cannot be compiled", why=reason, next_step='use lowering="aten"'
        )
    try:
        return _compiled(body)
    except (RuntimeError, OSError) as error:  # its folder may be full, or not ours
        lines = str(error).strip().splitlines()
        raise LoweringError(
            f"Inductor cannot compile a fused operation of {len(body.nodes)} operations",
            why=lines[0] if lines else type(error).__name__,
            next_step='use lowering="aten"',
        ) from error


def _compiled(body: Graph) -> Kernel:
    with _compiling, private.no_modes():
        mode = private.fake_tensors()
        with mode, torch.no_grad():
            fakes = [_fake(body, body.values[number]) for number in body.inputs]
            function = torch.func.functionalize(interpreted(body), remove="mutations")
            module = make_fx(function, decomposition_table=private.decompositions())(*fakes)
        _say_layouts(module, body)
        compiled = private.compile_inner(module, fakes, mode)
    numbers = [slot for slot, value in enumerate(body.inputs) if body.values[value].is_host_scalar]
    return _seen_by_modes(_with_tensors(compiled, numbers) if numbers else compiled)


@cache
def why_no_compiler(device: str) -> str | None:
    """Why nothing can be compiled for a device here; None where it can."""
    if device == "cpu":
        cpp = private.resolve("torch._inductor.config.cpp")
        names = cpp.cxx if isinstance(cpp.cxx, tuple | list) else (cpp.cxx,)
        if any(name and shutil.which(name) for name in names):
            return None
        return "there is no C++ compiler: g++ is none of the commands of this machine"
    has_triton = private.resolve("torch.utils._triton.has_triton")
    return None if has_triton() else f"there is no Triton for {device}"


def _device(body: Graph) -> str:
    """Kind of the device that a body runs on."""
    return body.storages[0].device.partition(":")[0] if body.storages else "cpu"


def _seen_by_modes(compiled: Kernel) -> Kernel:
    """Shows results to dispatch modes, such as meters: what a kernel allocates goes past them."""
    modes = private.count_of_modes()

    def run(operands: list[Any]) -> Sequence[torch.Tensor]:
        results = compiled(operands)
        return [result.detach() for result in results] if modes() else results

    return run


def _with_tensors(compiled: Kernel, slots: list[int]) -> Kernel:
    """Hands numbers over as tensors without dims, as kernels take them."""
    scalar, double = torch.tensor, torch.float64

    def run(operands: list[Any]) -> Sequence[torch.Tensor]:
        for slot in slots:
            operands[slot] = scalar(operands[slot], dtype=double)
        return compiled(operands)

    return run


def _fake(body: Graph, value: Value) -> torch.Tensor:
    if value.storage is None:
        return torch.empty((), dtype=torch.float64)
    shape = [n.constant_value() for n in value.shape]
    strides = [n.constant_value() for n in value.strides]
    dtype, device = getattr(torch, value.dtype), body.storages[value.storage].device
    return torch.empty_strided(shape, strides, dtype=dtype, device=device)


def _say_layouts(module: torch.fx.GraphModule, body: Graph) -> None:
    """Tell Inductor that results lie as the body says."""
    output = next(node for node in module.graph.nodes if node.op == "output")
    results = output.args[0]
    values = [body.values[number] for number in body.outputs]
    strides = [tuple(n.constant_value() for n in value.strides) for value in values]
    for node, wanted, value in zip(results, strides, values, strict=True):
        made = node.meta["val"]
        if (
            tuple(made.stride()) != wanted
            or made.storage_offset() != 0
            or tuple(made.shape) != tuple(n.constant_value() for n in value.shape)
        ):
            raise LoweringError(f"a fused operation lays out its result {value.name} otherwise than eager")
    output.meta["user_visible_output_idxs"] = list(range(len(values)))
    output.meta["original_output_strides"] = strides


def interpreted(body: Graph) -> Callable[..., list[Any]]:
    """A function that runs a body operation by operation, as eager does."""

    def run(*operands: Any) -> list[Any]:
        known: dict[int, Any] = dict(zip(body.inputs, operands, strict=True))
        for node in body.nodes:
            known.update(
                zip(
                    node.outputs,
                    by_output(node.results, len(node.outputs), _call(body, node, known)),
                    strict=True,
                )
            )
        return [known[number] for number in body.outputs]

    return run


def _call(body: Graph, node: Node, known: dict[int, Any]) -> Any:
    operands = [known[number] for number in node.inputs]
    args = [handed(arg, operands) for arg in node.args]
    kwargs = {key: handed(arg, operands) for key, arg in node.kwargs}
    namespace, name, overload = node.op.split(".")
    packet = getattr(getattr(torch.ops, namespace), name)
    is_number = (body.values[number].is_host_scalar for number in node.inputs)
    if any(
        number and isinstance(made, torch.Tensor) for number, made in zip(is_number, operands, strict=True)
    ):
        return _in_dtype_of(body, node, call_with_numbers(packet, args, kwargs))
    return getattr(packet, overload)(*args, **kwargs)


def _in_dtype_of(body: Graph, node: Node, result: torch.Tensor) -> torch.Tensor:
    """A result as eager has it: a number changes no dtype there, though a tensor without dims does."""
    wanted: torch.dtype = getattr(torch, body.values[node.outputs[0]].dtype)
    return result if result.dtype == wanted else result.to(wanted)


def handed(arg: Arg, operands: Sequence[Any]) -> Any:
    """What PyTorch is handed for an argument of a node."""
    if isinstance(arg, Ref):
        return operands[arg.slot]
    if isinstance(arg, tuple):
        return [handed(item, operands) for item in arg]
    if isinstance(arg, Named):
        return torch.device(arg.name) if arg.family == "device" else getattr(torch, arg.name)
    return arg.constant_value() if isinstance(arg, SizeExpr) else arg


def by_output(structure: Arg | None, count: int, result: Any) -> list[Any]:
    """What a call returned, by output of its node, in the structure that the node says."""
    if structure is None:
        return [result] if count == 1 else list(result)[:count] if count else []
    found: list[Any] = [None] * count
    waiting: list[tuple[Arg, Any]] = [(structure, result)]
    while waiting:
        place, item = waiting.pop()
        if isinstance(place, Ref):
            found[place.slot] = item
        elif isinstance(place, tuple) and isinstance(item, Sequence):
            waiting += zip(place, item, strict=False)
    return found
