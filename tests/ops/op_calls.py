"""A call of a PyTorch op as what the rows of the op table are asked about."""

import torch
from torch.utils._pytree import tree_leaves

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Named, Node, Ref
from neaptide.ir.registry import Call
from neaptide.ir.values import Storage, Value
from neaptide.symbolic.size_expr import SizeExpr


class _CallBuilder:
    """One node over the tensors of one call; tensors of equal storage share one."""

    def __init__(self):
        self.values, self.storages, self.inputs, self._by_key = [], [], [], {}

    def value(self, tensor):
        size = SizeExpr.const
        key = tensor.untyped_storage()._cdata
        if key not in self._by_key:
            nbytes = size(tensor.untyped_storage().nbytes())
            self._by_key[key] = len(self.storages)
            self.storages.append(Storage(len(self.storages), nbytes, str(tensor.device)))
        number = len(self.values)
        self.values.append(
            Value(
                number,
                f"v{number}",
                str(tensor.dtype).removeprefix("torch."),
                tuple(map(size, tensor.shape)),
                tuple(map(size, tensor.stride())),
                storage=self._by_key[key],
            )
        )
        return number

    def arg(self, item):
        if isinstance(item, torch.Tensor):
            self.inputs.append(self.value(item))
            return Ref(len(self.inputs) - 1)
        if isinstance(item, (list, tuple)):
            return tuple(self.arg(part) for part in item)
        if isinstance(item, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            return Named(type(item).__name__, str(item).removeprefix("torch."))
        return item if item is None or isinstance(item, (bool, int, float, str)) else str(item)


def make_call(op, args, kwargs, result):
    """The Call of `op(*args, **kwargs)` that gave `result`."""
    builder = _CallBuilder()
    node_args = tuple(builder.arg(a) for a in args)
    node_kwargs = tuple((name, builder.arg(kwargs[name])) for name in sorted(kwargs))
    outputs = tuple(builder.value(t) for t in tree_leaves(result) if isinstance(t, torch.Tensor))
    node = Node(0, str(op), tuple(builder.inputs), outputs, node_args, node_kwargs, results=_results(result))
    return Call(
        Graph((node,), tuple(builder.values), tuple(builder.storages), tuple(builder.inputs), outputs), node
    )


def _results(result):
    """Where the outputs lie among the results, some of which may not be made."""
    if not isinstance(result, tuple) or None not in result:
        return None
    made = iter(range(len(result)))
    return tuple(None if item is None else Ref(next(made)) for item in result)
