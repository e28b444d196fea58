"""Writes one side of a plan as a graph of FX: each execution is a node of its own, in the order of the plan.

Names behave like variables, as in a schedule: what is recomputed is a new node, and whoever comes later takes that.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import fx

from neaptide.errors import LoweringError
from neaptide.integrations.torch_compile.joint.fx_values import is_number
from neaptide.integrations.torch_compile.joint.joint_graph import JointGraph
from neaptide.integrations.torch_compile.programs.draws import draw_again
from neaptide.lower.out_variants import resolve_operation
from neaptide.ops import registry


class Side:
    """A graph that is being written.

    Attributes:
        graph: what was written so far.
        env: by node of the joint graph, what holds its value here now.
        states: by node that draws random numbers more than once, the node for the state before its first draw.
        has_run: nodes of the joint graph that ran, here or on the side before this one.
    """

    def __init__(
        self, joint: JointGraph, states: Mapping[fx.Node, fx.Node], has_run: Iterable[fx.Node] = ()
    ) -> None:
        self.joint, self.states = joint, states
        self.graph = fx.Graph()
        self.env: dict[fx.Node, fx.Node] = {}
        self.has_run = set(has_run)

    def placeholder(self, original: fx.Node) -> None:
        """Take the value of a node of the joint graph as an input."""
        made = self.graph.placeholder(original.name)
        made.meta = dict(original.meta)
        self.env[original] = made

    def run(self, nodes: Iterable[int]) -> None:
        """Write executions of nodes of the `Graph`, one after the other."""
        for node in nodes:
            self._execute(self.joint.node_of[node])

    def output(self, values: Sequence[Any], descriptions: Sequence[Any] | None) -> None:
        """End the graph: it returns values of some nodes of the joint graph, and constants."""
        made = self.graph.output(fx.map_arg(list(values), self.value))
        if descriptions is not None:
            made.meta["desc"] = list(descriptions)

    def module(self) -> fx.GraphModule:
        """The graph as a module that has the constants of the joint one."""
        return fx.GraphModule(self.joint.module, self.graph)

    def value(self, original: fx.Node) -> fx.Node:
        """What holds the value of a node of the joint graph."""
        original = self.joint.same.get(original, original)
        if original not in self.env:
            if not is_free(original):
                raise LoweringError(
                    f"{original.name} is used before it is computed", why="the plan is not legal"
                )
            self._write(original, original.target, original.args, original.kwargs)
        return self.env[original]

    def _execute(self, original: fx.Node) -> None:
        spec = registry().find(str(original.target))
        again, state = original in self.has_run, self.states.get(original)
        replay = None if spec is None or not again else spec.replay
        places: Mapping[Any, int] | None = None  # of results; None: as in the joint graph
        target: Any = original.target
        args: tuple[Any, ...] = original.args
        kwargs = original.kwargs
        if replay is not None and _writes(original):
            target, kwargs = resolve_operation(replay.op), {}
            args = replay.arguments(original.args)
            places = dict(enumerate(replay.outputs))
        if state is not None and again:
            args = (state, *state.args, target, *args)
            target = draw_again
        elif state is not None:
            self._write(state, state.target, state.args, {})
        self._write(original, target, args, kwargs)
        self.has_run.add(original)
        for user in original.users:
            if user.target is operator.getitem:
                wanted: Any = user.args[1]
                place = wanted if places is None else places.get(wanted)
                if place is not None:
                    self._write(user, user.target, (original, place), {})
            elif is_number(user) and user not in self.env:
                self.value(user)  # sizes are read off at once: later it may be gone

    def _write(self, original: fx.Node, target: Any, args: Any, kwargs: Any) -> None:
        made = self.graph.create_node(
            original.op,
            target,
            fx.map_arg(args, self.value),
            fx.map_arg(kwargs, self.value),
            name=original.name,
            type_expr=original.type,
        )
        made.meta = dict(original.meta)
        self.env[original] = made


def _writes(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def is_free(node: fx.Node) -> bool:
    """Whether a node has no place in an order: a constant of the module, or a number that follows from sizes."""
    return node.op == "get_attr" or (is_number(node) and node.op != "placeholder")
