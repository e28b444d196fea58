"""Cuts a planned sequence of a joint graph at its border into a forward and a backward graph of FX."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from neaptide.integrations.torch_compile import _torch_private as private
from neaptide.integrations.torch_compile.joint.fx_values import is_number
from neaptide.integrations.torch_compile.joint.joint_graph import JointGraph, Sides
from neaptide.integrations.torch_compile.programs.draws import states_of
from neaptide.integrations.torch_compile.programs.emit import Side, is_free


def sides_of(module: fx.GraphModule, num_fwd_outputs: int) -> Sides:
    """What a joint graph of AOTAutograd takes and gives."""
    taken = [node for node in module.graph.nodes if node.op == "placeholder"]
    tangents = tuple(node for node in taken if str(node.target).startswith("tangents"))
    primals = tuple(node for node in taken if node not in tangents)
    output = output_of(module)
    given, told = given_by(module), output.meta.get("desc") or ()
    by_description = {node.meta.get("desc"): node for node in primals}
    overwritten = {}
    for node, description in zip(given[:num_fwd_outputs], told, strict=False):
        if (primal := by_description.get(private.mutated_input(description))) is not None:
            overwritten[primal] = node
    return Sides(primals, tangents, given[:num_fwd_outputs], given[num_fwd_outputs:], overwritten)


@dataclass(frozen=True)
class Saved:
    """What autograd saves: tensors and numbers, as nodes of the joint graph."""

    tensors: tuple[fx.Node, ...]
    numbers: tuple[fx.Node, ...]


def cut(joint: JointGraph, sequence: Sequence[int]) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The two modules of a sequence of node ids. O(its length).

    The forward returns its outputs, then what is saved, numbers last; the backward takes numbers, tensors, then tangents.
    """
    assert joint.border is not None
    at = sequence.index(joint.border)
    before, after = sequence[:at], sequence[at + 1 :]
    sides = joint.sides
    states = states_of(joint, sequence)
    saved = saved_values(joint, before, after, states)
    forward = Side(joint, states)
    for primal in sides.primals:
        forward.placeholder(primal)
    forward.run(before)
    told = output_descriptions(joint)
    kept = [private.saved_description(k) for k in range(len(saved.tensors) + len(saved.numbers))]
    count = len(sides.outputs)
    forward.output(
        [*sides.outputs, *saved.tensors, *saved.numbers], None if told is None else [*told[:count], *kept]
    )
    backward = Side(joint, states, forward.has_run)
    for node in (*saved.numbers, *saved.tensors, *sides.tangents):
        backward.placeholder(node)
    backward.run(after)
    backward.output(sides.gradients, None if told is None else told[count:])
    return forward.module(), backward.module()


def in_order(joint: JointGraph, sequence: Sequence[int]) -> fx.GraphModule:
    """The module of a sequence of a graph without a backward. O(its length)."""
    side = Side(joint, states_of(joint, sequence))
    for primal in joint.sides.primals:
        side.placeholder(primal)
    side.run(sequence)
    side.output(joint.sides.outputs, output_descriptions(joint))
    return side.module()


def output_descriptions(joint: JointGraph) -> list[Any] | None:
    """What AOTAutograd says of the outputs of a graph; None where it says nothing."""
    told = output_of(joint.module).meta.get("desc")
    return None if told is None else list(told)


def output_of(module: fx.GraphModule) -> fx.Node:
    """The last node of a graph, which says what it returns."""
    found: fx.Node = next(iter(reversed(module.graph.nodes)))
    return found


def given_by(module: fx.GraphModule) -> tuple[Any, ...]:
    """What a graph returns: nodes, numbers, or None."""
    given: Any = output_of(module).args[0]
    return tuple(given)


def saved_values(
    joint: JointGraph, before: Iterable[int], after: Iterable[int], states: Mapping[fx.Node, fx.Node]
) -> Saved:
    """What the backward takes of what the forward has, in the order in which it is first used. O(executions)."""
    there: set[fx.Node] = set(joint.sides.tangents)
    found: dict[fx.Node, None] = {}

    def need(node: fx.Node) -> None:
        node = joint.same.get(node, node)
        if node in there or node in found or node.op == "get_attr":
            return
        if is_free(node) and any(operand in there for operand in node.all_input_nodes):
            for operand in node.all_input_nodes:  # the size of something that the backward makes
                need(operand)
            there.add(node)
            return
        found[node] = None

    ran = {joint.node_of[number] for number in before}
    for number in after:
        node = joint.node_of[number]
        if node in states and node in ran:
            need(states[node])
        for operand in node.all_input_nodes:
            need(operand)
        there.add(node)
        there.update(user for user in node.users if user.target is operator.getitem)
    for node in joint.sides.gradients:
        if isinstance(node, fx.Node):
            need(node)
    # The symbols of sizes, which compilers of the backward ask for.
    symbols = [node for node in joint.sides.primals if is_number(node)]
    numbers = [*symbols, *(node for node in found if is_number(node) and node not in symbols)]
    tensors = [node for node in found if not is_number(node)]
    # Autograd checks the versions of all but these, which come last.
    tensors.sort(key=lambda node: bool(node.meta.get("saved_tensor_with_no_vc_check", False)))
    return Saved(tuple(tensors), tuple(numbers))
