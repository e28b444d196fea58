"""Reverse mode: extends a model by the nodes that compute derivatives of one of its values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from neaptide.autodiff.call import Call
from neaptide.autodiff.emitter import Emitter, Tensor
from neaptide.autodiff.errors import GradientError
from neaptide.autodiff.paths import find_paths
from neaptide.autodiff.prepare import find_value, prepared
from neaptide.autodiff.rules.table import RULES
from neaptide.errors import UsageError


def grad(model: ir.Model, loss: str, wrt: Sequence[str], sgd: float | None = None) -> ir.Model:
    """A copy of a model that also computes the gradient of one of its values.

    The nodes that are added are of the standard domain, so that any runtime of the model runs them. Every operator they use
    has a rule itself or is constant almost everywhere: the result can be differentiated again.

    What is differentiated is pinned. The model is not simplified: equal initializers stay apart, batch normalisation is not
    folded. An initializer in `wrt` becomes an input of the model whose default is the initializer: a runtime may neither fold
    it nor share it with an equal one, and takes a new value for it at each call.

    Args:
        model: with an opset of 18 or later, or one that can be converted to 18. It is not changed.
        loss: name of a value with one element.
        wrt: names of values. Each gives an output `NAME_grad` in the shape of the value; where that name is taken, `_grad` is
            appended again. A value on which the loss does not depend has zeros.
        sgd: a learning rate. The outputs are then `NAME_new`, which is `NAME - sgd * gradient`, and no gradient is an output,
            so that each can be freed after its update. A step of training passes `NAME_new` as the input `NAME` of the next.

    Raises:
        UsageError: a name that the model does not have, or a loss with several elements.
        GradientError: an operator on the path has no rule, or a shape that a rule needs is not known.
    """
    if not wrt or len(set(wrt)) < len(wrt):
        raise UsageError(
            "the values to differentiate are none, or one of them is named twice", where=", ".join(wrt)
        )
    extended = prepared(model)
    graph = extended.graph
    target = find_value(extended, loss)
    chosen = [find_value(extended, name) for name in wrt]
    emitter = Emitter(graph)
    seed = _seed(emitter.tensor(target))
    _pin(graph, chosen, needed=sgd is not None)
    found: dict[ir.Value, Tensor] = {}
    for value, adjoint in _adjoints(emitter, graph, seed, chosen):
        # An update stands right after its gradient, so that this dies there in the order of the file, too.
        found[value] = adjoint if sgd is None else emitter.tensor(value) - adjoint * sgd
    for value in chosen:
        if value not in found:
            tensor = emitter.tensor(value)
            found[value] = emitter.zeros(tensor) if sgd is None else tensor
    suffix = "_grad" if sgd is None else "_new"
    _add_outputs(graph, {f"{value.name}{suffix}": found[value] for value in chosen}, chosen)
    emitter.remove_unused()
    return extended


def _seed(loss: Tensor) -> tuple[ir.Value, Tensor]:
    """The adjoint of the loss: one."""
    if not loss.dtype.is_floating_point() or np.prod(loss.shape) != 1:
        raise UsageError(
            f"{loss.value.name!r} is no loss",
            why=f"it is {loss.dtype.name} in the shape {list(loss.shape)}, and a loss is one floating-point number",
            next_step="append a ReduceSum or a ReduceMean to the model",
        )
    return loss.value, loss.emitter.constant(np.ones(loss.shape, dtype=loss.dtype.numpy()))


def _pin(graph: ir.Graph, chosen: Sequence[ir.Value], *, needed: bool) -> None:
    """Makes inputs of the initializers; `needed` refuses what is neither."""
    for value in chosen:
        if value.is_initializer() and not value.is_graph_input():
            graph.inputs.append(value)
        elif needed and not value.is_graph_input():
            raise UsageError(
                f"{value.name!r} cannot be updated",
                why="a node computes it",
                next_step="name initializers and inputs of the model",
            )


def _adjoints(
    emitter: Emitter, graph: ir.Graph, seed: tuple[ir.Value, Tensor], chosen: Sequence[ir.Value]
) -> Iterator[tuple[ir.Value, Tensor]]:
    """Chosen values with their adjoints, each as soon as it is whole; nodes that follow belong to what comes later."""
    paths = find_paths(graph, seed[0], chosen)
    adjoints: dict[ir.Value | None, Tensor] = {seed[0]: seed[1]}
    asked = set(chosen)
    waiting = Counter(value for node in paths.nodes for value in set(node.inputs))
    if seed[0] in asked:
        yield seed
    for node in paths.nodes:
        waiting.subtract(set(node.inputs))
        own = tuple(adjoints.get(value) for value in node.outputs)
        rule = RULES.get(node.op_type) if node.domain in {"", "ai.onnx"} else None
        if rule is None:
            raise GradientError(
                f"{node.domain or 'ai.onnx'}.{node.op_type} has no derivative rule",
                where=node.name or node.outputs[0].name,
                next_step="differentiate with respect to values after it, or express it by other operators",
            )
        wanted = tuple(value in paths.varying for value in node.inputs)
        parts = rule(Call(emitter, node, own, wanted)) if any(own) else ()
        for value, part, is_wanted in zip(node.inputs, parts, wanted, strict=False):
            if part is not None and is_wanted:
                adjoints[value] = adjoints[value] + part if value in adjoints else part
        for value in dict.fromkeys(node.inputs):
            if value is not None and value in asked and not waiting[value] and value in adjoints:
                yield value, adjoints[value]


def _add_outputs(graph: ir.Graph, results: Mapping[str, Tensor], like: Sequence[ir.Value]) -> None:
    """Names results and makes outputs of them; a result that has a name already is copied by an Identity."""
    taken = {v.name for v in graph.inputs} | set(graph.initializers)
    taken |= {v.name for node in graph.all_nodes() for v in node.outputs}
    for (wanted, tensor), value in zip(results.items(), like, strict=True):
        name, suffix = wanted, wanted[wanted.rindex("_") :]
        while name in taken:
            name += suffix
        own = tensor.value.producer() is not None and not tensor.value.is_graph_output()
        made = (tensor if own else tensor.apply("Identity")).value
        made.name = name
        made.type, made.shape = value.type, value.shape
        graph.outputs.append(made)
        taken.add(name)
