"""Rows of axes on real kernels: run whole, run in three unequal parts, merge as the row says, compare.

Run as a program it prints what does not agree: kernels that are handed wrong lengths may end the process.
"""

import itertools
import json
import sys

import torch
from axis_samples import overload, real, samples, tensors
from axis_samples_rare import rare_samples
from torch.utils._pytree import tree_map_only

from neaptide.ir.axes import Along, Merge, Need
from neaptide.ir.nodes import Ref
from neaptide.ops import registry
from ops.op_calls import make_call


def copies(item):
    return tree_map_only(torch.Tensor, torch.clone, item)


def cuts(length):
    """Where three unequal parts begin and end; the first is one element."""
    ends = [0, 1, max(2, 3 * length // 7), length] if length > 2 else list(range(length + 1))
    return list(itertools.pairwise(ends))


class Sample:
    def __init__(self, name, args, kwargs):
        self.op, self.args, self.kwargs = overload(name), args, kwargs
        self.whole = tensors(self.run(args, kwargs))
        self.call = make_call(self.op, args, kwargs, self.op(*copies(args), **copies(kwargs)))
        self.row = registry().require(str(self.op)).axes

    def run(self, args, kwargs):
        return self.op(*copies(args), **copies(kwargs))

    def with_operands(self, change):
        """The arguments with the tensor in slot k replaced by `change(k, tensor)`."""
        values = {}
        for k, tensor in enumerate(tensors((self.args, [self.kwargs[key] for key in sorted(self.kwargs)]))):
            values[k] = change(k, tensor)
        counter = iter(values.values())
        args = tree_map_only(torch.Tensor, lambda _: next(counter), self.args)
        kwargs = {
            key: tree_map_only(torch.Tensor, lambda _: next(counter), self.kwargs[key])
            for key in sorted(self.kwargs)
        }
        return args, kwargs

    def length(self, axis):
        """Elements that parts are counted in: where windows overlap, of the result or of what is added up; else the fewest."""
        if Need.HALO in axis.needs and axis.results[0] is Merge.SUM:
            slot, dim = next((s, d) for s, d in axis.operands.items() if s not in axis.window.operands)
            return self.call.inputs()[slot].shape[dim].constant_value()
        if Need.HALO in axis.needs:
            return self.call.output().shape[axis.results[0]].constant_value()
        return min(self.extents(axis))

    def extents(self, axis):
        """Extents of the axis in what carries it."""
        values = [self.call.inputs()[s].shape[d] for s, d in axis.operands.items()]
        values += [
            self.call.outputs()[k].shape[d] for k, d in axis.results.items() if not isinstance(d, Merge)
        ]
        return [extent.constant_value() for extent in values]

    def check(self, axis):
        length = self.length(axis)
        parts = [self.part(axis, length, begin, end) for begin, end in cuts(length)]
        weights = [(end - begin) / length for begin, end in cuts(length)]
        if Need.MEAN in axis.needs and "nll" in str(self.op):
            counts = [part[1] for part in parts]
            weights = [count / sum(counts) for count in counts]
        for k, how in axis.results.items():
            if k in axis.private:
                continue
            found = [part[k] for part in parts]
            if Need.MEAN in axis.needs and not ("nll" in str(self.op) and k == 1):
                found = [item * weight for item, weight in zip(found, weights, strict=True)]
            self.compare(self.merged(found, how), self.whole[k])

    def part(self, axis, length, begin, end):
        window = axis.window

        def cut(slot, tensor):
            if slot in axis.addends and begin:
                return torch.zeros_like(tensor)
            if slot not in axis.operands:
                return tensor
            dim = axis.operands[slot]
            if window is not None and slot in window.operands and Need.HALO in axis.needs:
                return self.read(tensor, dim, window, begin, end)
            inner = tensor.shape[dim] // length
            return tensor.narrow(dim, begin * inner, (end - begin) * inner).contiguous()

        args, kwargs = self.with_operands(cut)
        if axis.own:
            args = (*args[:-1], own_of(self.op, args))
        return tensors(self.run(self.resized(axis, args, length, end - begin), kwargs))

    def read(self, tensor, dim, window, begin, end):
        """What the windows of results `begin` to `end` read, padding included."""
        size = (end - begin - 1) * window.stride + window.dilation * (window.kernel - 1) + 1
        first = begin * window.stride - window.before
        rows = torch.arange(first, first + size)
        inside = (rows >= 0) & (rows < tensor.shape[dim])
        shape = [-1 if d == dim else 1 for d in range(tensor.dim())]
        found = tensor.index_select(dim, rows.clamp(0, tensor.shape[dim] - 1))
        return found.masked_fill(~inside.view(shape), window.fill)

    def resized(self, axis, args, length, part):
        """Arguments that are shapes of the first result, or that the row says hold the extent, and padding made before."""
        found = list(args)
        for position, arg in enumerate(found):
            places = [at[1] for at in axis.sizes if isinstance(at, tuple) and at[0] == position]
            if places:
                whole = self.call.output().shape[axis.results[0]].constant_value()
                found[position] = [part * whole // length if k in places else a for k, a in enumerate(arg)]
            elif position in axis.sizes:
                found[position] = [part] if isinstance(arg, list) else part
            elif position in self.row.shapes and not isinstance(dim := axis.results.get(0), Merge):
                found[position] = [
                    a * part // length if d == dim and a != -1 else a for d, a in enumerate(arg)
                ]
        for position, place in axis.window.padding if Need.HALO in axis.needs else ():
            part_of = axis.window.padding_in_part
            found[position] = [part_of if k == place else pad for k, pad in enumerate(found[position])]
        return tuple(found)

    def merged(self, parts, how):
        if how is Merge.SAME:
            for part in parts[1:]:
                self.compare(part, parts[0])
            return parts[0]
        if isinstance(how, Merge):
            stacked = torch.stack(parts)
            return {Merge.SUM: stacked.sum, Merge.MAX: stacked.amax, Merge.MIN: stacked.amin}[how](0)
        return torch.cat(parts, how)

    def compare(self, found, expected):
        near = (1e-5, 1e-6) if expected.dtype == torch.float32 else (1e-9, 1e-11)
        torch.testing.assert_close(
            found, expected, rtol=near[0], atol=near[1], check_stride=False, equal_nan=True
        )

    def parallel_axes(self):
        """Axes that can be run: neither needed whole nor with numbers that no two runs share."""
        if self.row.regroups:
            return list(self.regroup_axes())
        axes = [] if self.row.axes is None else list(self.row.axes(self.call))
        return [a for a in axes if not a.whole and Need.RANDOM not in a.needs and "empty" not in str(self.op)]

    def regroup_axes(self):
        """A view as axes: one for each dim of the operand that one dim of the result holds."""
        from neaptide.analysis.axes.lines import regrouped
        from neaptide.ir.axes import OpAxis

        value, made = self.call.inputs()[0], self.call.output()
        for dim, extent in enumerate(value.shape):
            size = extent.constant_value()
            lies = regrouped(value, Along(dim), size, made) if size > 1 else None
            if lies is not None and lies.outer == 1:
                yield OpAxis({0: dim}, {0: lies.dim})

    def check_linear(self, group):
        """Terms in the place of the operands of a group make terms of the results."""
        here = {ref.slot for position in group for ref in _refs(self.call.node.args[position])}
        if not all(_refs(self.call.node.args[position]) for position in group):
            return
        given = tensors((self.args, [self.kwargs[key] for key in sorted(self.kwargs)]))
        if any(not given[k].is_floating_point() for k in here):
            return
        terms = {k: real(*given[k].shape) for k in here}
        one = tensors(self.run(*self.with_operands(terms.get)))
        other = tensors(self.run(*self.with_operands(lambda k, t: t - terms[k] if k in terms else t)))
        for a, b, expected in zip(one, other, self.whole, strict=True):
            if expected.dtype == torch.float32:
                torch.testing.assert_close(a + b, expected)
            else:
                self.compare(a + b, expected)


def own_of(op, args):
    """What the forward of a part keeps for the backward of the same part, which is the last argument."""
    if op is torch.ops.aten.mkldnn_rnn_layer_backward.default:
        _, mode, width, layers, biases, train, both, packing, first = args[13:22]
        options = (args[13], packing, mode, width, layers, biases, both, first, train)
        return torch.ops.aten.mkldnn_rnn_layer(*args[:7], *options)[3]
    return torch.ops.aten.max_pool2d_with_indices(*args[1:7])[1]


def _refs(arg):
    if isinstance(arg, Ref):
        return [arg]
    return [ref for item in arg for ref in _refs(item)] if isinstance(arg, tuple) else []


def elementwise_samples(named):
    """Calls of all other operations that work element by element, made up from their schemas."""
    for row in registry():
        name = row.name.removeprefix("aten.")
        if (
            row.axes is None
            or row.name in named
            or not row.name.startswith("aten.")
            or "out" in name.split(".")[1]
        ):
            continue
        schema = overload(name)._schema
        if any(argument.alias_info and argument.alias_info.is_write for argument in schema.arguments[1:]):
            continue
        for make in (real, lambda *shape: torch.randint(1, 3, shape), lambda *shape: torch.rand(shape) > 0.5):
            shapes = iter(((7, 5, 3), (7, 1, 3), (5, 3), (3,)))
            args = [given(argument, make, shapes) for argument in schema.arguments if not argument.kwarg_only]
            try:
                sample = Sample(name, tuple(args), {})
            except (RuntimeError, NotImplementedError):
                continue
            yield name, sample
            break


def given(argument, make, shapes):
    """An argument for a parameter of a schema."""
    kind = str(argument.type)
    if kind == "Tensor":
        return make(*next(shapes))
    if argument.has_default_value():
        return argument.default_value
    return {"number": 2, "float": 0.5, "int": 1, "bool": False, "str": "none", "List[Tensor]": []}.get(kind)


def check_all():
    """Names that have a sample, how many axes were run, and what did not agree."""
    torch.manual_seed(0)
    seen, run, wrong = set(), 0, []
    explicit = [(name, Sample(name, args, kwargs)) for name, args, kwargs in (*samples(), *rare_samples())]
    named = {f"aten.{name}" for name, _ in explicit}
    for name, sample in (*explicit, *elementwise_samples(named)):
        seen.add(f"aten.{name}")
        checks = [
            (axis, lambda axis=axis, sample=sample: sample.check(axis)) for axis in sample.parallel_axes()
        ]
        checks += [
            (group, lambda group=group, sample=sample: sample.check_linear(group))
            for group in sample.row.linear
        ]
        for what, check in checks:
            run += 1
            try:
                check()
            except (AssertionError, RuntimeError, IndexError, TypeError) as error:
                shapes = [tuple(t.shape) for t in tensors((sample.args, sample.kwargs))]
                wrong.append(f"{name} {shapes} {what}: {type(error).__name__}: {str(error)[:300]}")
    return seen, run, wrong


if __name__ == "__main__":
    torch.set_num_threads(1)
    covered, count, failures = check_all()
    json.dump({"covered": sorted(covered), "run": count, "wrong": failures}, sys.stdout)
