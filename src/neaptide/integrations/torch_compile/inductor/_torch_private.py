"""Private names of Inductor, resolved in one place. Checked against torch 2.11 to 2.15."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import fx

from neaptide.frontends._torch_private import resolve

_CONFIG = "torch._inductor.config"


@dataclass(frozen=True, slots=True)
class Kernel:
    """What Inductor runs at once.

    Attributes:
        origins: names of the nodes of FX that it computes.
    """

    name: str
    origins: frozenset[str]


@dataclass(frozen=True, slots=True)
class Generated:
    """A graph of FX as the program that Inductor makes of it, before its kernels are compiled.

    Attributes:
        source: the module of Python whose function `call` runs the kernels.
        kernels: in the order in which they run; kernels that write nothing of their own included.
    """

    source: str
    constants: Mapping[str, torch.Tensor]
    kernels: tuple[Kernel, ...]


def copied(module: fx.GraphModule) -> fx.GraphModule:
    """A graph with the same constants, which passes may change."""
    graph, env = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in module.graph.nodes:
        env[node] = graph.node_copy(node, env.__getitem__)
    return fx.GraphModule(module, graph)


def partitioner_base() -> type:
    """The class of what Inductor takes as its partitioner."""
    found: type = resolve("torch._inductor.custom_graph_pass", "CustomPartitionerFn")
    return found


def compile_fx(module: fx.GraphModule, inputs: Sequence[Any], **more: Any) -> Callable[..., Any]:
    """Inductor as a backend of Dynamo."""
    made: Callable[..., Any] = resolve("torch._inductor.compile_fx", "compile_fx")(module, inputs, **more)
    return made


def compile_inner(module: fx.GraphModule, inputs: Sequence[Any], **more: Any) -> Any:
    """Inductor for a graph that AOTAutograd made."""
    return resolve("torch._inductor.compile_fx", "compile_fx_inner")(module, inputs, **more)


def own_partition(module: fx.GraphModule, inputs: Sequence[Any], **more: Any) -> tuple[Any, Any]:
    """The forward and backward graph as Inductor cuts a joint graph by itself, which stays as it is."""
    cut = resolve("torch._functorch.partitioners", "min_cut_rematerialization_partition")
    made: tuple[Any, Any] = cut(copied(module), inputs, **more)
    return made


def no_programs_of_aot() -> contextlib.AbstractContextManager[None]:
    """Within, AOTAutograd takes no partition from its cache: a plan is made by each process, and reported."""
    made: contextlib.AbstractContextManager[None] = resolve("torch._functorch", "config").patch(
        enable_autograd_cache=False
    )
    return made


def without_compiler(device: str) -> str | None:
    """Why Inductor cannot compile for a kind of device here; None where it can."""
    if device == "cpu":
        try:
            resolve("torch._inductor.cpp_builder", "get_cpp_compiler")()
        except RuntimeError as error:
            return (str(error).strip().splitlines() or [type(error).__name__])[0]
        return None
    return None if resolve("torch.utils._triton", "has_triton")() else "Triton is not installed"


def patched(**settings: Any) -> contextlib.AbstractContextManager[None]:
    """Settings of Inductor, for a while."""
    made: contextlib.AbstractContextManager[None] = resolve(_CONFIG, "patch")(settings)
    return made


def first_fixed(module: fx.GraphModule) -> int:
    """How many inputs of a backward graph come before its tangents: their addresses may stay the same."""
    found: int = resolve("torch._inductor.utils", "count_tangents")(module)
    return found


def generate(module: fx.GraphModule, inputs: Sequence[Any], **more: Any) -> Generated:
    """What Inductor would run for a graph. Its kernels are fused and ordered, but not compiled; the graph stays as it is."""
    found: list[Generated] = []
    with (
        _nothing_compiled(found),
        _no_strides_told(),
        patched(fx_graph_cache=False, fx_graph_remote_cache=False),
    ):
        compile_inner(copied(module), list(inputs), **more)
    return found[-1]


@contextlib.contextmanager
def overwriting_saved(
    taken: Sequence[Any], outputs: Sequence[Any], saved: Sequence[Any], gradients: Sequence[Any], first: int
) -> Iterator[None]:
    """Within, Inductor knows which inputs of a backward it may overwrite, as AOTAutograd will tell it.

    Args:
        taken: fakes that the forward takes; `outputs`: what it gives the user; `saved`: what it saves.
        gradients: what the backward gives.
        first: position of the first of `saved` among the inputs of the backward.
    """
    context = resolve("torch._guards", "TracingContext").try_get()
    if context is None or not resolve("torch._functorch", "config").donated_buffer:
        yield
        return
    found = resolve("torch._functorch._aot_autograd.graph_compile", "collect_fw_donated_buffer_idxs")(
        list(taken), list(outputs), list(gradients), list(saved)
    )
    before = context.fw_metadata  # AOTAutograd sets it when it has a partition
    context.fw_metadata = SimpleNamespace(bw_donated_idxs=[first + position for position in found])
    try:
        yield
    finally:
        context.fw_metadata = before


@contextlib.contextmanager
def _no_strides_told() -> Iterator[None]:
    """Within, Inductor does not tell AOTAutograd how results lie: it may do so once for a graph."""
    context = resolve("torch._guards", "TracingContext").try_get()
    before = None if context is None else context.output_strides
    if context is not None:
        context.output_strides = None
    try:
        yield
    finally:
        if context is not None:
            context.output_strides = before


class _NoProgram:
    """Stands where the compiled module would."""

    __file__ = ""

    @staticmethod
    def call(_args: Any) -> None:
        """Is never called."""


@contextlib.contextmanager
def _nothing_compiled(found: list[Generated]) -> Iterator[None]:
    lowering = resolve("torch._inductor.graph", "GraphLowering")
    compiled = lowering.compile_to_module

    def generated(self: Any) -> _NoProgram:
        code, _ = self.codegen()
        found.append(Generated(code.value, dict(self.constants), tuple(map(_kernel, self.scheduler.nodes))))
        return _NoProgram()

    lowering.compile_to_module = generated
    try:
        yield
    finally:
        lowering.compile_to_module = compiled


def _kernel(node: Any) -> Kernel:
    origins = {origin.name for part in node.get_nodes() if part.node for origin in part.node.get_origins()}
    return Kernel(node.get_name(), frozenset(origins))
