"""Peaks as a card's caching allocator counts them, and what is not exact about a card that is not there."""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.cost.presets import PRESETS, cublas_workspace_bytes
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.ir.values import Kind
from neaptide.policy.prepared_step import PreparedStep

_PRODUCTS = ("aten.mm.", "aten.addmm.", "aten.bmm.", "aten.baddbmm.")
_MOMENT_BYTES = 4  # of a number in 32 bits
_BLOCK = 256  # numbers that share one scale, in bitsandbytes
_LEAST_NUMBERS = 4096  # of a moment that it keeps in 8 bits

_NOT_EXACT = {
    "aten._cudnn_rnn.default": "what cuDNN reserves for the backward pass of recurrent layers",
    "aten.cudnn_batch_norm.default": "what cuDNN reserves for batch norms",
    "aten.convolution.default": "workspace of cuDNN's convolutions",
}


@dataclass(frozen=True, slots=True)
class AllocatedPeak:
    """Bytes at the highest step: all, and of these the workspace of cuBLAS."""

    nbytes: int
    library_bytes: int


def allocated_peak(prepared: PreparedStep) -> AllocatedPeak:
    """What `max_memory_allocated` is predicted to say of the usual step in program order."""
    graph = prepared.captured.steady.graph
    prices = prepared.prices(graph)
    block = prepared.device.main_space.alignment_bytes
    sizes = evaluate_storage_bytes(graph, overrides=prices.storage_bytes)
    rounded = {
        storage.id: -(-nbytes // block) * block for storage, nbytes in zip(graph.storages, sizes, strict=True)
    }
    schedule = Schedule.from_nodes(graph, prepared.as_written().sequence)
    found = memory_profile(graph, schedule, workspace=prices.workspace, storage_bytes=rounded)
    library = library_bytes(prepared, graph)
    return AllocatedPeak(found.peak_with_workspace_bytes + library, library)


def library_bytes(prepared: PreparedStep, graph: Graph) -> int:
    """Workspace that cuBLAS keeps for a program on a preset's card."""
    multiplies = any(node.op.startswith(_PRODUCTS) for node in graph.nodes)
    return cublas_workspace_bytes(prepared.device) if multiplies and prepared.device.name in PRESETS else 0


def saved_by_small_states(graph: Graph) -> int:
    """Bytes that moments in 8 bits save: a byte a number, and a scale for each block."""
    saved = 0
    for storage, nbytes in zip(graph.storages, evaluate_storage_bytes(graph), strict=True):
        numbers = nbytes // _MOMENT_BYTES
        if storage.kind is Kind.OPTIMIZER_STATE and numbers >= _LEAST_NUMBERS:
            saved += nbytes - numbers - numbers // _BLOCK * _MOMENT_BYTES
    return saved


def not_exact(graph: Graph) -> tuple[str, ...]:
    """What is estimated of a program that was captured for a card that is not there."""
    used = {node.op for node in graph.nodes}
    return tuple(why for operation, why in _NOT_EXACT.items() if operation in used)
