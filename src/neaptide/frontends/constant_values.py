"""Values of a trace that depend on no input of the step, computed once."""

from __future__ import annotations

from typing import Any

import torch

from neaptide.frontends import _torch_private as private

MAX_BYTES = 1 << 28  # what a value and all that it is made of may take; a larger one stays unknown


def constant_value(node: torch.fx.Node, root: Any) -> torch.Tensor | None:
    """What a traced node is in every step; None where it depends on an input, on random numbers, or is too large.

    Args:
        node: of a trace, which may still be going on.
        root: holds the literal tensors of the trace by name.
    """
    sources: set[torch.fx.Node] = set()
    if not is_constant(node, sources) or sum(map(_bytes, sources)) > MAX_BYTES:
        return None
    return _evaluate(node, root, {})


def is_constant(node: torch.fx.Node, seen: set[torch.fx.Node]) -> bool:
    """Whether a node depends on no input, by pure operations only; all that it depends on is added to `seen`."""
    stack = [node]
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        if current.op == "get_attr":
            continue
        target = current.target
        if current.op != "call_function" or not isinstance(target, torch._ops.OpOverload):  # noqa: SLF001
            return False
        if target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags:  # noqa: SLF001
            return False
        stack.extend(current.all_input_nodes)
    written = _written_storages(node.graph)
    return not any(key in written for source in seen for key in _storages(source))


def _written_storages(graph: torch.fx.Graph) -> set[int]:
    """Storages that some operation overwrites, itself or through a view."""
    written: set[int] = set()
    for node in graph.nodes:
        target = node.target
        if isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable:  # noqa: SLF001
            written.update(key for source in node.all_input_nodes for key in _storages(source))
    return written


def _storages(node: torch.fx.Node) -> list[int]:
    fake = node.meta.get("val")
    return [private.storage_key(fake)] if isinstance(fake, torch.Tensor) else []


def _bytes(node: torch.fx.Node) -> int:
    fake = node.meta.get("val")
    return fake.numel() * max(fake.element_size(), 8) if isinstance(fake, torch.Tensor) else 0


def _evaluate(node: torch.fx.Node, root: Any, known: dict[torch.fx.Node, Any]) -> torch.Tensor:
    if node not in known:
        if node.op == "get_attr":
            literal = getattr(root, str(node.target))
            known[node] = literal.constant if private.is_fake(literal) else literal
        else:
            args, kwargs = torch.fx.node.map_arg(
                (node.args, node.kwargs), lambda n: _evaluate(n, root, known)
            )
            target: Any = node.target
            known[node] = target(*args, **{k: _on_cpu(k, v) for k, v in kwargs.items()})
    result: torch.Tensor = known[node]
    return result


def _on_cpu(name: str, value: Any) -> Any:
    return torch.device("cpu") if name == "device" and value is not None else value
