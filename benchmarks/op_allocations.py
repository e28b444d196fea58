"""Names the operations after a difference between the allocator's peak and its prediction.

Each operation of a running program is recorded as a region of its own, so that what it allocates in the
program can be put beside what it allocated alone (the audit, on which predictions stand).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from neaptide.cost.cards.allocator_events import record, region
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule


class _NamedRegions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A region around each operator; notes its name and the bytes of the storages that it made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {_storage(t) for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        with region(str(func)):
            result = func(*args, **(kwargs or {}))
        fresh = {
            _storage(t): t.untyped_storage().nbytes()
            for t in pytree.tree_leaves(result)
            if isinstance(t, torch.Tensor)
        }
        self.calls.append((str(func), sum(n for key, n in fresh.items() if key not in given)))
        return result


def workspace_differences(
    run: Callable[[], object], graph: Graph, schedule: Schedule, workspace: Mapping[int, int]
) -> list[str]:
    """Operations whose workspace in the running program is not the predicted one, largest difference first.

    Args:
        run: one step of the program, which has run before.
        graph: what it runs; `schedule` is its order.
        workspace: predicted bytes by node id.

    Returns:
        Texts such as `aten.mm.default: 4096 bytes in the program, 0 predicted (2 calls)`; when the program does
        not call the operators of its schedule in order, one text saying so.
    """
    mode = _NamedRegions()

    def run_in_regions() -> None:
        with mode:
            run()

    trace = record(run_in_regions)
    nodes = [graph.nodes[step.target] for step in schedule.node_steps()]
    found: dict[str, int] = {}
    position = 0
    for node in nodes:
        ahead = position
        while ahead < len(mode.calls) and mode.calls[ahead][0] != node.op:
            ahead += 1
        if ahead == len(mode.calls):
            # Arithmetic on Python numbers and views that autograd makes itself do not pass the dispatcher.
            continue
        name, fresh_bytes = mode.calls[ahead]
        position = ahead + 1
        seen = max(0, trace.regions[ahead][1] - fresh_bytes)
        predicted = workspace.get(node.id, 0)
        if seen != predicted:
            text = f"{name}: {seen} bytes in the program, {predicted} predicted"
            found[text] = found.get(text, 0) + 1
    return [text if count == 1 else f"{text} ({count} calls)" for text, count in found.items()]


def _storage(tensor: torch.Tensor) -> int:
    identity: int = tensor.untyped_storage()._cdata  # noqa: SLF001 - a storage has no public identity
    return identity
