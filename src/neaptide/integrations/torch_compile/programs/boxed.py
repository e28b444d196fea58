"""A graph of FX as a function that takes one list and empties it, so that its arguments can die while it runs."""

from __future__ import annotations

import itertools
import linecache
import re
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import fx

_OPERATION: Final = re.compile(r"\btorch\.ops(?:\.\w+){3}(?=\()")
_numbers: Final = itertools.count()


def boxed(module: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """The function of a graph. What FX writes lets go of each value at its last use."""
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    taken = graph.placeholder("args")
    for node in reversed([node for node in module.graph.nodes if node.op == "placeholder"]):
        env[node] = graph.call_method("pop", (taken,))
    for node in module.graph.nodes:
        if node.op != "placeholder":
            env[node] = graph.node_copy(node, env.__getitem__)
    forward = _function(graph)

    def call(args: list[Any]) -> Any:
        return forward(module, args)

    call._boxed_call = True  # type: ignore[attr-defined]  # noqa: SLF001 - by this name AOTAutograd knows it
    return call


def _function(graph: fx.Graph) -> Callable[[fx.GraphModule, list[Any]], Any]:
    """What FX writes for a graph, with a name for each operation: to look it up costs as much as a small one takes."""
    code = graph.python_code("self")
    names: dict[str, str] = {}

    def name_of(found: re.Match[str]) -> str:
        return names.setdefault(found[0], "_".join(found[0].split(".")))

    source = _OPERATION.sub(name_of, code.src)
    space = dict(code.globals)
    for path, name in names.items():
        operation: Any = torch
        for part in path.split(".")[1:]:
            operation = getattr(operation, part)
        space[name] = operation
    file = f"<neaptide.torch_compile.{next(_numbers)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), space)  # noqa: S102 - code that FX wrote
    written: Callable[[fx.GraphModule, list[Any]], Any] = space["forward"]
    return written
