"""Members of an axis against the sharding rules of PyTorch's DTensor: the placement of results, call by call.

Run as a program with specifications of zoo models. A mesh of two ranks on a process group that does nothing; no
kernel runs. The rules are private to PyTorch, so they are asked here and nowhere else.
"""

import json
import sys
import warnings
from collections import Counter

import torch
import torch.distributed
from axis_run import first_dims, graph_of, to_look_at
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema, RuntimeSchemaInfo
from torch.testing._internal.distributed.fake_pg import FakeStore

from neaptide.analysis.axes.follow import follow
from neaptide.ir.axes import Along, Merge
from neaptide.ir.nodes import Named, Ref
from neaptide.lower.out_variants import resolve_operation
from neaptide.ops import registry
from neaptide.symbolic.size_expr import SizeExpr


class Oracle:
    def __init__(self):
        torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
        self.mesh = DeviceMesh("cpu", [0, 1])
        self.propagator = DTensor._op_dispatcher.sharding_propagator

    def results(self, graph, node, placements):
        """What a call makes of operands that are placed so, and whether DTensor would move them first."""
        specs = [
            None if p is None else self.spec(graph.values[v], p)
            for v, p in zip(node.inputs, placements, strict=True)
        ]
        args = tuple(self.argument(arg, specs) for arg in node.args)
        kwargs = {key: self.argument(arg, specs) for key, arg in node.kwargs}
        known = self.propagator.op_to_schema_info.get(resolve_operation(node.op)) or RuntimeSchemaInfo()
        schema = OpSchema(resolve_operation(node.op), args, kwargs, schema_info=known)
        found = self.propagator.propagate_op_sharding_non_cached(schema)
        made = found.output_spec
        outputs = made if isinstance(made, (list, tuple)) else [made]
        return [spec.placements[0] for spec in outputs if spec is not None], bool(found.needs_redistribute)

    def spec(self, value, placement):
        meta = TensorMeta(
            torch.Size(extent.constant_value() for extent in value.shape),
            tuple(stride.constant_value() for stride in value.strides),
            getattr(torch, value.dtype),
        )
        return DTensorSpec(self.mesh, (placement,), meta)

    def argument(self, arg, specs):
        if isinstance(arg, Ref):
            return 0.1 if specs[arg.slot] is None else specs[arg.slot]
        if isinstance(arg, Named):
            return torch.device(arg.name) if arg.family == "device" else getattr(torch, arg.name)
        if isinstance(arg, SizeExpr):
            return arg.constant_value()
        return [self.argument(item, specs) for item in arg] if isinstance(arg, tuple) else arg


def placed(how):
    """The placement that a way of carrying the axis is; blocks of a joined dim where the axis lies in it as the outer."""
    if isinstance(how, Along):
        return Shard(how.dim)
    return Partial("sum") if how is Merge.SUM else Replicate()


def compared(oracle, graph):
    """Counts of agreements, of calls without a rule, and what differs, each distinct call once."""
    seeds, length = first_dims(graph)
    found = follow(graph, registry(), seeds, length, to_look_at(graph))
    seen, counts, differences = set(), Counter(), Counter()
    for number, line in found.members.items():
        node = graph.nodes[number]
        placements = [
            None
            if graph.values[v].storage is None
            else placed(line.operands[slot])
            if slot in line.operands
            else Partial("sum")
            if v in found.sums and not line.operands
            else Replicate()
            for slot, v in enumerate(node.inputs)
        ]
        shapes = [str(graph.values[v].shape) for v in node.inputs]
        key = (node.op, str(node.args), str(placements), *shapes)
        joined = any(
            a.outer > 1 for a in (*line.operands.values(), *line.results.values()) if isinstance(a, Along)
        )
        if key in seen or joined:
            continue
        seen.add(key)
        counts["calls"] += 1
        try:
            made, moved = oracle.results(graph, node, placements)
        except NotImplementedError:
            counts["no rule"] += 1
            differences[f"{node.op}: no rule"] += 1
            continue
        except Exception as error:  # noqa: BLE001 - rules fail in many ways on calls that they do not foresee
            counts["failed"] += 1
            differences[f"{node.op}: {type(error).__name__}"] += 1
            continue
        expected = [placed(line.results[k]) for k in range(len(node.outputs))]
        if [str(p) for p in made] == [str(p) for p in expected]:
            counts["moved" if moved else "agree"] += 1
            if moved:
                differences[f"{node.op}: moved"] += 1
        else:
            counts["differ"] += 1
            differences[f"{node.op}: {made}, not {expected}{', moved' if moved else ''}"] += 1
    return {"counts": counts, "differences": differences}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    judge = Oracle()
    json.dump({spec: compared(judge, graph_of(spec)) for spec in sys.argv[1:]}, sys.stdout)
