"""Inputs that the forward pass overwrites, in joint graphs for Inductor: AOTAutograd writes these copies last.

They belong before the border. A plan then never saves what is gone.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import fx

from neaptide.integrations.torch_compile.joint.joint_graph import Sides

_COPY = torch.ops.aten.copy_.default


def write_in_forward(module: fx.GraphModule, sides: Sides) -> Sides:
    """Move each copy into an input to where all that reads its old contents has run, and note it. O(nodes).

    What the backward reads of the old contents is kept as a copy.
    """
    graph = module.graph
    place = {node: position for position, node in enumerate(graph.nodes)}
    after_border = _depend_on(sides.tangents)
    written = dict(sides.overwritten)
    for node in list(graph.nodes):
        if node.target is not _COPY or node.args[0] not in sides.primals or node in after_border:
            continue
        primal = node.args[0]
        late = [user for user in primal.users if user in after_border]
        if late:
            first = min(late, key=place.__getitem__)
            with graph.inserting_after(primal):
                kept = graph.create_node("call_function", torch.ops.aten.clone.default, (primal,))
            kept.meta = {key: item for key, item in primal.meta.items() if key != "desc"}
            for user in late:
                user.replace_input_with(primal, kept)
            place[kept] = place[first] - 1
        earlier = [*primal.users, *node.all_input_nodes]
        last = max((one for one in earlier if one is not node), key=place.__getitem__)
        last.append(node)
        place[node] = place[last]
        written[primal] = node
    return replace(sides, overwritten=written)


def _depend_on(nodes: tuple[fx.Node, ...]) -> set[fx.Node]:
    found: set[fx.Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.users)
    return found
