"""Members of an axis on real kernels: each distinct call of a graph whole and in three unequal parts, and compared.

Run as a program with specifications of zoo models, it prints what does not agree and what was not classified: kernels
that are handed wrong lengths may end the process.
"""

import itertools
import json
import sys
import warnings
from collections import Counter

import torch
from torch.utils._pytree import tree_leaves

from neaptide import zoo
from neaptide.analysis.axes.follow import follow
from neaptide.ir.axes import Along, Merge, Need
from neaptide.ir.nodes import Named, Ref
from neaptide.ir.values import Kind
from neaptide.lower.out_variants import resolve_operation
from neaptide.ops import registry
from neaptide.runtime.comparing import contestants
from neaptide.runtime.steps.capturing import capture
from neaptide.symbolic.size_expr import SizeExpr


def graph_of(spec):
    step, batch = contestants.build(zoo.factory(spec), 0)
    return capture(step, (batch,)).steady.graph


def first_dims(graph):
    """Seeds: dim 0 of every tensor of the batch, which has one length, and that length."""
    given = [v for v in graph.inputs if graph.values[v].shape and _kind(graph, v) is Kind.INPUT]
    length = graph.values[given[0]].shape[0].constant_value()
    return {v: Along(0) for v in given if graph.values[v].shape[0].constant_value() == length}, length


def _kind(graph, value):
    storage = graph.values[value].storage
    return None if storage is None else graph.storages[storage].kind


def to_look_at(graph):
    return [node.id for node in graph.nodes if node.source.phase != "optimizer"]


class Run:
    """Runs a graph node by node in program order, and every member along an axis in parts as well."""

    def __init__(self, graph, seeds, length):
        self.graph, self.length = graph, length
        self.found = follow(graph, registry(), seeds, length, to_look_at(graph))
        self.numbers = {v: number_for(graph, v) for v in graph.inputs}
        self.seen, self.wrong, self.compared = set(), [], 0
        self.skipped = {c.node for c in self.found.conditions if c.need is Need.RANDOM}

    def go(self):
        for number in to_look_at(self.graph):
            node = self.graph.nodes[number]
            line = self.found.members.get(number)
            operands = [self.numbers[v] for v in node.inputs]
            before = [o.clone() if isinstance(o, torch.Tensor) else o for o in operands]
            made = self.call(node, operands, node.args, node.kwargs)
            if line is not None and number not in self.skipped and "empty" not in node.op:
                self.compare(node, line, before, made)
            for value, result in zip(node.outputs, made, strict=True):
                self.numbers[value] = result

    def compare(self, node, line, operands, whole):
        key = (node.op, str(node.args), str(line), *(tuple(getattr(o, "shape", ())) for o in operands))
        if key in self.seen:
            return
        self.seen.add(key)
        self.compared += 1
        try:
            for k, how in line.results.items():
                self.check_result(node, line, operands, whole, k, how)
        except (AssertionError, RuntimeError, IndexError, TypeError) as error:
            shapes = [tuple(getattr(o, "shape", ())) for o in operands]
            self.wrong.append(
                f"{node.op} {shapes} {node.args} {line}: {type(error).__name__}: {str(error)[:200]}"
            )

    def check_result(self, node, line, operands, whole, k, how):
        if not line.operands and how is Merge.SUM:
            self.check_linear(node, operands, whole, k)
            return
        ends = [0, 1, max(2, 3 * self.length // 7), self.length]
        parts = []
        for begin, end in itertools.pairwise(ends):
            made = self.part(node, line, operands, begin, end)
            mean = Need.MEAN in line.axis.needs and not ("nll" in node.op and k == 1)
            if mean:
                made[k] *= made[1] / whole[1] if "nll" in node.op else (end - begin) / self.length
            parts.append(made[k])
        if isinstance(how, Along):
            shape = whole[k].shape
            split = [part.unflatten(how.dim, (how.outer, -1)) for part in parts]
            found = torch.cat(split, how.dim + 1).flatten(how.dim, how.dim + 1)
            assert found.shape == shape
        elif how is Merge.SUM:
            found = sum(parts)
        else:
            assert how is Merge.SAME
            found = parts[-1]
        _assert_close(found.to(whole[k].dtype), whole[k])

    def check_linear(self, node, operands, whole, k):
        """Terms of a sum: a third and two thirds of the same."""
        terms = {s for s, v in enumerate(node.inputs) if v in self.found.sums}
        assert terms
        made = []
        for share in (0.25, 0.75):
            given = [o * share if s in terms else o for s, o in enumerate(operands)]
            made.append(self.call(node, given, node.args, node.kwargs)[k])
        _assert_close(sum(made), whole[k])

    def part(self, node, line, operands, begin, end):
        given = []
        for slot, operand in enumerate(operands):
            along = line.operands.get(slot)
            if along is None:
                zero = slot in line.axis.addends and begin > 0
                given.append(torch.zeros_like(operand) if zero else _copy(operand))
                continue
            inner = operand.shape[along.dim] // along.outer // self.length
            runs = operand.unflatten(along.dim, (along.outer, -1))
            cut = runs.narrow(along.dim + 1, begin * inner, (end - begin) * inner)
            given.append(_like(cut.flatten(along.dim, along.dim + 1), operand))
        args = list(node.args)
        for position, arg in enumerate(args):
            args[position] = self.resized(node, line, position, arg, end - begin)
        return self.call(node, given, tuple(args), node.kwargs)

    def resized(self, node, line, position, arg, size):
        """A shape of the first result, or the extent of the axis, as it is for a part."""
        if position in line.axis.sizes:
            (slot, along), *_ = line.operands.items()
            extent = self.graph.values[node.inputs[slot]].shape[along.dim].constant_value()
            part = extent * size // self.length
            return (part,) if isinstance(arg, tuple) else part
        row, how = registry().require(node.op).axes, line.results.get(0)
        if position not in row.shapes or not isinstance(how, Along):
            return arg
        return tuple(a * size // self.length if d == how.dim and a != -1 else a for d, a in enumerate(arg))

    def call(self, node, operands, args, kwargs):
        """The results of a node on some operands."""
        if node.op == "neaptide.constant":
            return [_constant(self.graph, node)]
        operation = resolve_operation(node.op)
        result = operation(
            *(_argument(a, operands) for a in args), **{k: _argument(a, operands) for k, a in kwargs}
        )
        return [r for r in tree_leaves(result) if r is not None]


def number_for(graph, number):
    """A random operand for an input of a graph; positive where a program may take a root of it."""
    value = graph.values[number]
    shape = [extent.constant_value() for extent in value.shape]
    if value.storage is None:
        return 0.1
    if not value.dtype.startswith("float"):
        return torch.randint(2, shape).to(getattr(torch, value.dtype))
    if _kind(graph, number) is Kind.PARAMETER:
        return torch.randn(shape) * 0.3
    return torch.rand(shape) * 0.8 + 0.1


def _assert_close(found, expected):
    assert not (expected.is_floating_point() and expected.isnan().any()), (
        "numbers of the sample are no numbers"
    )
    scale = float(expected.abs().max()) if expected.is_floating_point() else 0
    torch.testing.assert_close(found, expected, rtol=2e-4, atol=1e-5 * (1 + scale), check_stride=False)


def _constant(graph, node):
    value = graph.values[node.outputs[0]]
    numbers, shape = node.args[0], [e.constant_value() for e in value.shape]
    made = torch.tensor(numbers, dtype=getattr(torch, value.dtype))
    return torch.full(shape, made.item(), dtype=made.dtype) if made.numel() == 1 else made.reshape(shape)


def _copy(operand):
    return operand.clone() if isinstance(operand, torch.Tensor) else operand


def _like(part, operand):
    """A part with dims in memory in the order of the whole, as the same operations would have made it."""
    order = sorted(range(operand.dim()), key=lambda d: -operand.stride(d))
    back = [order.index(d) for d in range(operand.dim())]
    return part.permute(order).contiguous().permute(back)


def _argument(arg, operands):
    if isinstance(arg, Ref):
        return operands[arg.slot]
    if isinstance(arg, Named):
        return torch.device(arg.name) if arg.family == "device" else getattr(torch, arg.name)
    if isinstance(arg, SizeExpr):
        return arg.constant_value()
    return [_argument(item, operands) for item in arg] if isinstance(arg, tuple) else arg


def report(spec):
    graph = graph_of(spec)
    seeds, length = first_dims(graph)
    run = Run(graph, seeds, length)
    run.go()
    barriers = Counter(f"{graph.nodes[b.node].op}: {b.why}" for b in run.found.barriers)
    return {
        "nodes": len(to_look_at(graph)),
        "members": len(run.found.members),
        "untouched": len(run.found.untouched),
        "barriers": barriers,
        "compared": run.compared,
        "wrong": run.wrong,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    json.dump({spec: report(spec) for spec in sys.argv[1:]}, sys.stdout)
