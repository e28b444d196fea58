"""The ladder of the deep-learning systems lecture (CS498) on graphs that train, over their depth.

    python benchmarks/onnx_ladder.py [--deepest 1024] [--family mlp]

One graph, a step of training with its gradients, is given its memory in several ways: no reuse; results in place; a dynamic
pool with liveness counters; a static plan; sqrt(n) checkpointing; and back-propagation on the forward graph, which holds
the forward to the end. What is counted is what the step makes: neither weights nor their updates.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from onnx import ModelProto, helper, numpy_helper

import neaptide.onnx
from bench_record import RESULTS, recorded, save
from neaptide.analysis.folded import folded_storages
from neaptide.frontends.onnx.reader import read_model
from neaptide.ir.graph import Graph
from neaptide.ir.registry import Call
from neaptide.ir.schedule import Schedule
from neaptide.ir.values import Kind
from neaptide.layout.bounds import live_bytes
from neaptide.layout.caching_allocator import caching_allocator_reserved
from neaptide.layout.from_schedule import OUTSIDE, ScheduleBuffers, schedule_buffers
from neaptide.layout.in_place import choose_in_place, share
from neaptide.layout.placement import place_by_size
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.validate import check_layout
from neaptide.ops.onnx import registry
from neaptide_peers.layouts.ladder import schedule_tags
from neaptide_peers.layouts.tags import TagAction

DEPTHS: Final = (16, 32, 64, 128, 256, 512, 1024)
_FLOAT: Final = 1
_ALIGNMENT: Final = 4


def mlp(depth: int) -> ModelProto:
    """Dense layers of 16 units with tanh, on a batch of 256."""
    held = {f"w{i}": _random(i, 16, 16) for i in range(depth)}
    nodes = []
    for i in range(depth):
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"z{i}"]))
        nodes.append(helper.make_node("Tanh", [f"z{i}"], [f"x{i + 1}"]))
    return _with_loss(nodes, held, (256, 16), f"x{depth}")


def resnet(depth: int) -> ModelProto:
    """Residual blocks of a 3x3 convolution and a sigmoid, on 4 channels of 32 x 32."""
    held = {f"w{i}": _random(i, 4, 4, 3, 3) * 0.1 for i in range(depth)}
    nodes = []
    for i in range(depth):
        nodes.append(helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"z{i}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Sigmoid", [f"z{i}"], [f"a{i}"]))
        nodes.append(helper.make_node("Add", [f"x{i}", f"a{i}"], [f"x{i + 1}"]))
    return _with_loss(nodes, held, (1, 4, 32, 32), f"x{depth}")


def lstm(depth: int) -> ModelProto:
    """An LSTM of 16 units over a sequence of `depth` elements, in a batch of 64; the loss reads the last state."""
    held = {"w": _random(0, 1, 64, 8), "r": _random(1, 1, 64, 16), "b": _random(2, 1, 128)}
    nodes = [helper.make_node("LSTM", ["x0", "w", "r", "b"], ["", "h"], hidden_size=16)]
    return _with_loss(nodes, held, (depth, 64, 8), "h")


FAMILIES: Final[Mapping[str, Callable[[int], ModelProto]]] = {"mlp": mlp, "resnet": resnet, "lstm": lstm}


def lecture() -> Training:
    """The lecture's first graph, exp(a b + 3), whose result is read once."""
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["product"]),
        helper.make_node("Add", ["product", "three"], ["sum"]),
        helper.make_node("Exp", ["sum"], ["result"]),
        helper.make_node("ReduceSum", ["result"], ["read"], keepdims=0),
    ]
    infos = [helper.make_tensor_value_info(name, _FLOAT, (64,)) for name in ("a", "b")]
    read = helper.make_tensor_value_info("read", _FLOAT, ())
    three = numpy_helper.from_array(np.asarray(3, np.float32), "three")
    model = helper.make_model(
        helper.make_graph(nodes, "lecture", infos, [read], [three]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    return Training.whole(read_model(model).graph)


def counters(training: Training) -> Iterator[str]:
    """What the liveness counters do, line by line, in the order of the graph."""
    program = [node.id for node in training.graph.nodes]
    buffers, _, choices = _shared(training, program)
    instances = buffers.liveness.instances
    names = [training.graph.storages[one.storage].name for one in instances]
    return schedule_tags(training.graph, buffers, choices).lines(names)


def _random(seed: int, *shape: int) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape) / math.sqrt(shape[-1])).astype(np.float32)


def _with_loss(
    nodes: list[object], held: Mapping[str, np.ndarray], shape: tuple[int, ...], last: str
) -> ModelProto:
    nodes.append(helper.make_node("ReduceSumSquare", [last], ["loss"], keepdims=0))
    graph = helper.make_graph(
        nodes,
        "deep",
        [helper.make_tensor_value_info("x0", _FLOAT, shape)],
        [helper.make_tensor_value_info("loss", _FLOAT, ())],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@dataclass(frozen=True, slots=True)
class Rung:
    """One way to give a step its memory.

    Attributes:
        name: what it is called.
        nbytes: memory for what the step makes.
        allocator_calls: how often an allocator is asked for memory while the step runs.
        fragmentation: bytes beyond those that are live together, as a share of these.
        work: multiplications and additions, as a share of those of one forward and one backward.
    """

    name: str
    nbytes: int
    allocator_calls: int
    fragmentation: float
    work: float


@dataclass(frozen=True, slots=True)
class Training:
    """A step of training as a graph: its forward nodes, and sizes of what counts."""

    graph: Graph
    forward: tuple[int, ...]
    sizes: Mapping[int, int]
    flops: tuple[int, ...]

    @staticmethod
    def of(model: ModelProto) -> Training:
        """From a model with the output `loss`: gradients by all weights, and updates."""
        names = [tensor.name for tensor in model.graph.initializer]
        return Training.whole(read_model(neaptide.onnx.grad(model, loss="loss", wrt=names, sgd=0.1)).graph)

    @staticmethod
    def whole(graph: Graph) -> Training:
        """From a graph whose first output is the end of its forward."""
        rows = registry()
        flops = [0] * len(graph.nodes)
        for node in graph.nodes:
            if (spec := rows.find(node.op)) is not None:
                flops[node.id] = spec.flops(Call(graph, node)).constant_value()
        made = {graph.values[v].storage for v in graph.outputs}
        held = {s.id for s in graph.storages if s.kind in {Kind.INPUT, Kind.BUFFER}}
        sizes = {**folded_storages(graph), **dict.fromkeys((s for s in {*made, *held} if s is not None), 0)}
        return Training(graph, _ancestors(graph, graph.outputs[0]), sizes, tuple(flops))

    def work(self, sequence: Sequence[int]) -> int:
        """Multiplications and additions of a sequence of nodes."""
        return sum(self.flops[node] for node in sequence)


def _ancestors(graph: Graph, value: int) -> tuple[int, ...]:
    """Nodes that a value depends on, in their order."""
    maker = {v: node.id for node in graph.nodes for v in node.outputs}
    found: set[int] = set()
    waiting = [maker[value]]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += [maker[v] for v in graph.nodes[node].inputs if v in maker]
    return tuple(sorted(found))


def checkpointed(training: Training, segments: int) -> list[int]:
    """Forward, then backward with each segment of the forward recomputed before its first use there (Chen et al., 2016).

    What crosses from one segment to a later one is held, and not recomputed. The last segment is never dropped.
    """
    graph, forward = training.graph, training.forward
    length = -(-len(forward) // segments)
    segment_of = {node: place // length for place, node in enumerate(forward)}
    last = max(segment_of.values())
    maker = {v: node for node in forward for v in graph.nodes[node].outputs}
    crossing = {
        maker[v]
        for node in forward
        for v in graph.nodes[node].inputs
        if v in maker and segment_of[maker[v]] != segment_of[node]
    }
    needed = {
        maker[v] for node in graph.nodes if node.id not in segment_of for v in node.inputs if v in maker
    }
    for node in reversed(forward):
        if node in needed and node not in crossing:
            needed.update(maker[v] for v in graph.nodes[node].inputs if v in maker)
    inside: dict[int, list[int]] = {}
    for node in forward:
        if node in needed and node not in crossing:
            inside.setdefault(segment_of[node], []).append(node)
    there = {last}
    sequence = list(forward)
    for node in graph.nodes:
        if node.id in segment_of:
            continue
        for value in node.inputs:
            made = maker.get(value)
            if made is not None and made not in crossing and segment_of[made] not in there:
                there.add(segment_of[made])
                sequence += inside[segment_of[made]]
        sequence.append(node.id)
    return sequence


def held_to_the_end(training: Training, buffers: ScheduleBuffers, problem: LayoutProblem) -> LayoutProblem:
    """The buffers of a step that runs backward operations on the forward graph: no result of the forward dies before its end."""
    end = max(buffer.end for buffer in problem.buffers)
    kept = set()
    for index, instance in enumerate(buffers.liveness.instances):
        if instance.start < len(training.forward) and buffers.buffer_of[index] != OUTSIDE:
            kept.add(problem.buffers[buffers.buffer_of[index]].name)
    return replace(
        problem, buffers=tuple(replace(b, end=end) if b.name in kept else b for b in problem.buffers)
    )


def climb(training: Training) -> Iterator[Rung]:
    """All rungs of one step."""
    forward = set(training.forward)
    program = [*training.forward, *(node.id for node in training.graph.nodes if node.id not in forward)]
    yield from ways(training, program, "")
    buffers = _buffers(training, program)
    yield _static(
        "backprop on the forward graph",
        training,
        program,
        held_to_the_end(training, buffers, buffers.problem),
    )
    yield from list(ways(training, fewest_bytes(training), "sqrt(n), "))[2:]


def fewest_bytes(training: Training) -> list[int]:
    """Of some numbers of segments about the root of the layers, the checkpointed sequence that holds least."""
    layers = len(training.forward)
    tried = {round(math.sqrt(layers) * factor) for factor in (0.4, 0.6, 0.8, 1.0)}
    sequences = [checkpointed(training, count) for count in sorted(tried) if count > 1]
    return min(sequences, key=lambda one: live_bytes(_shared(training, one)[1]))


def _buffers(training: Training, sequence: Sequence[int]) -> ScheduleBuffers:
    schedule = Schedule.from_nodes(training.graph, sequence)
    return schedule_buffers(training.graph, schedule, storage_bytes=training.sizes, alignment=_ALIGNMENT)


def _shared(training: Training, sequence: Sequence[int]) -> tuple[ScheduleBuffers, LayoutProblem, object]:
    schedule = Schedule.from_nodes(training.graph, sequence)
    buffers = _buffers(training, sequence)
    choices = choose_in_place(training.graph, schedule, registry(), storage_bytes=training.sizes)
    return buffers, share(buffers, choices).problem, choices


def ways(training: Training, sequence: Sequence[int], prefix: str = "") -> Iterator[Rung]:
    """No reuse, results in place, two pools, a static plan."""
    buffers, shared, choices = _shared(training, sequence)
    work = training.work(sequence) / training.work([node.id for node in training.graph.nodes])
    live = live_bytes(shared)
    for name, problem in (("no reuse", buffers.problem), ("in place", shared)):
        total = sum(problem.sizes.tolist())
        yield Rung(prefix + name, total, len(problem), total / live - 1, work)
    tags = schedule_tags(training.graph, buffers, choices)
    made = sum(
        event.action is not TagAction.PASSED and event.action is not TagAction.BACK for event in tags.events
    )
    yield Rung(prefix + "liveness counters", tags.total_bytes, made, tags.total_bytes / live - 1, work)
    pool = caching_allocator_reserved(shared)
    yield Rung(prefix + "caching pool", pool, len(shared), pool / live - 1, work)
    yield _static(prefix + "static plan", training, sequence, shared)


def _static(name: str, training: Training, sequence: Sequence[int], problem: LayoutProblem) -> Rung:
    layout = place_by_size(problem)
    check_layout(problem, layout)
    work = training.work(sequence) / training.work([node.id for node in training.graph.nodes])
    return Rung(name, layout.arena_bytes, 1, layout.arena_bytes / live_bytes(problem) - 1, work)


def exponent(depths: Sequence[int], nbytes: Sequence[int]) -> float:
    """Slope of bytes over depth, both as logarithms, by least squares."""
    return float(np.polyfit(np.log(depths), np.log(nbytes), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deepest", type=int, default=DEPTHS[-1])
    parser.add_argument("--family", choices=FAMILIES, action="append")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON")
    given = parser.parse_args()
    print(*counters(lecture()), sep="\n")
    depths = [depth for depth in DEPTHS if depth <= given.deepest]
    found = {}
    for family in given.family or FAMILIES:
        rungs: dict[str, list[Rung]] = {}
        for depth in depths:
            began = time.perf_counter()
            training = Training.of(FAMILIES[family](depth))
            for rung in climb(training):
                rungs.setdefault(rung.name, []).append(rung)
            print(
                f"{family} {depth}: {len(training.graph.nodes)} nodes, {time.perf_counter() - began:.1f} s",
                flush=True,
            )
        found[family] = {
            name: {"exponent": exponent(depths, [r.nbytes for r in row]), "rungs": [asdict(r) for r in row]}
            for name, row in rungs.items()
        }
        for name, row in rungs.items():
            last = row[-1]
            print(
                f"  {name:32} {last.nbytes / 1024:12.1f} KiB  exponent {found[family][name]['exponent']:.3f}  "
                f"{last.allocator_calls:6} calls  {last.fragmentation:7.1%} lost  work {last.work:.3f}"
            )
    rows = [{"family": family, "memory": memory} for family, memory in found.items()]
    save("onnx_ladder", recorded(rows, seed=0, repeats=1, depths=depths), given.output)


if __name__ == "__main__":
    main()
