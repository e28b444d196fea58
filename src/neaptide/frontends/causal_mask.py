"""Gives attention its `is_causal` flag back where a traced mask is proved to be the causal one.

Model libraries build the causal mask as a tensor when they notice that they are traced, and pass `is_causal`
otherwise. The mask costs bytes and the other kernel branch costs bits. Where the mask depends on no input of the
step it is computed here, once, and compared with the lower triangle: a proof, not a guess.

A mask that the user's own code makes is left alone, causal or not: eager uses it as well, and its bits are eager's.
"""

from __future__ import annotations

import os
from typing import Any

import torch

MAX_PROOF_BYTES = 1 << 28  # a larger mask is left as it is

_FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default  # noqa: SLF001
_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default  # noqa: SLF001

# operation: (position of the flag, position of the mask or None when it is a keyword argument)
_CAUSAL_FLAG = {_FORWARD: 4, _BACKWARD: 7}

# Code that makes a mask only when it is traced.
_MASK_MAKERS = (os.path.join("transformers", "masking_utils.py"),)  # noqa: PTH118


def restore_causal_attention(module: torch.fx.GraphModule) -> list[str]:
    """Rewrites attention under a proved causal mask, in place; says in words what was done.

    The forward and the backward of one attention share their mask, so either both are rewritten or none.
    """
    proved: dict[torch.fx.Node, bool] = {}
    rewritten = 0
    for node in module.graph.nodes:
        flag = _CAUSAL_FLAG.get(node.target)
        mask = node.kwargs.get("attn_mask")
        if flag is None or not isinstance(mask, torch.fx.Node):
            continue
        if mask not in proved:
            proved[mask] = _is_causal(mask, module)
        if not proved[mask]:
            continue
        node.kwargs = {k: v for k, v in node.kwargs.items() if k != "attn_mask"}
        defaults: list[Any] = list(node.args) + [0.0, False][len(node.args) - (flag - 1) :]
        defaults[flag] = True
        node.args = tuple(defaults)
        rewritten += 1
    if not rewritten:
        return []
    return [f"{rewritten} attention ops: a materialised mask is proved causal and replaced by is_causal"]


def _is_causal(mask: torch.fx.Node, module: torch.fx.GraphModule) -> bool:
    fake = mask.meta["val"]
    rows, columns = fake.shape[-2:]
    sources: set[torch.fx.Node] = set()
    if rows != columns or not _is_constant(mask, sources) or not _is_made_for_tracing(sources):
        return False
    if fake.numel() * max(fake.element_size(), 8) > MAX_PROOF_BYTES:
        return False
    real = _evaluate(mask, module, {})
    lower = torch.ones(rows, columns, dtype=torch.bool).tril()
    if real.dtype == torch.bool:
        return bool((real == lower).all())
    return bool((real == torch.zeros(rows, columns).masked_fill(~lower, float("-inf"))).all())


def _is_made_for_tracing(nodes: set[torch.fx.Node]) -> bool:
    lines = ((node.meta.get("custom") or {}).get("line") for node in nodes)
    return any(line is not None and line[0].endswith(_MASK_MAKERS) for line in lines)


def _is_constant(node: torch.fx.Node, seen: set[torch.fx.Node]) -> bool:
    """Whether a node depends on no input, by pure operations only."""
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
    return True


def _evaluate(
    node: torch.fx.Node, module: torch.fx.GraphModule, known: dict[torch.fx.Node, Any]
) -> torch.Tensor:
    if node not in known:
        if node.op == "get_attr":
            known[node] = getattr(module, str(node.target))
        else:
            args, kwargs = torch.fx.node.map_arg(
                (node.args, node.kwargs), lambda n: _evaluate(n, module, known)
            )
            target: Any = node.target
            known[node] = target(*args, **{k: _on_cpu(k, v) for k, v in kwargs.items()})
    result: torch.Tensor = known[node]
    return result


def _on_cpu(name: str, value: Any) -> Any:
    return torch.device("cpu") if name == "device" and value is not None else value
