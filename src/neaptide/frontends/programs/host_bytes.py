"""Bytes of what host code after a program works on, such as averaged weights: they live through every step.

Each program has them as an input that no operation takes. So they are part of its peak, of its baseline and of its
bounds, and a budget is one for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import torch

from neaptide.frontends import _torch_private as private
from neaptide.frontends.programs.captured import CapturedProgram
from neaptide.frontends.recording.trace_values import identifier
from neaptide.frontends.state.step_slots import InputSlot
from neaptide.frontends.state.step_state import StepState
from neaptide.ir.values import Kind, Storage, Value
from neaptide.symbolic.size_expr import SizeExpr

_BEHIND: Final = "behind"


def kept_bytes(step: StepState, head: StepState) -> dict[str, int]:
    """Bytes, by device, of the storages that a whole step works on and its head does not.

    Numbered entries of one element are left out: a list that keeps losses grows, and the program stays.
    """
    inside = {key for key, _, _ in _storages(head)}
    found = {key: (device, nbytes) for key, device, nbytes in _storages(step) if key not in inside}
    total: dict[str, int] = {}
    for device, nbytes in found.values():
        total[device] = total.get(device, 0) + nbytes
    return total


def with_kept(program: CapturedProgram, kept: Mapping[str, int]) -> CapturedProgram:
    """A program beside such bytes."""
    graph, slots = program.graph, program.inputs
    for device, nbytes in sorted(kept.items()):
        value, storage, size = len(graph.values), len(graph.storages), SizeExpr.const(nbytes)
        name = identifier(f"host_code_on_{device}")
        strides = (SizeExpr.const(1),)
        graph = replace(
            graph,
            values=(*graph.values, Value(value, name, "uint8", (size,), strides, storage=storage)),
            storages=(*graph.storages, Storage(storage, size, device, Kind.BUFFER, name)),
            inputs=(*graph.inputs, value),
        )
        slots = (*slots, InputSlot("buffer", f"what host code keeps on {device}", (_BEHIND, device)))
    return replace(program, graph=graph, inputs=slots)


def bytes_after(program: CapturedProgram) -> int:
    """Bytes of a program that only host code after it works on."""
    values = program.graph.values
    behind = (
        value
        for value, slot in zip(program.graph.inputs, program.inputs, strict=True)
        if slot.key[0] == _BEHIND
    )
    return sum(values[value].nbytes.constant_value() for value in behind)


def _storages(state: StepState) -> Iterator[tuple[int, str, int]]:
    """Key, device and bytes of the storages of the tensors of a step."""
    for slot in (*state.tensors, *state.unused):
        tensor = slot.current()
        is_logged = tensor.numel() <= 1 and isinstance(getattr(slot.places[0], "key", None), int)
        if not is_logged and tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            device = "cpu" if tensor.is_meta else str(tensor.device)  # without bytes it stands for one there
            yield private.storage_key(storage), device, storage.nbytes()
