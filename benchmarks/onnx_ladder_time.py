"""Seconds and bytes of a step of training with sqrt(n) checkpointing, over its depth, in ONNX Runtime.

    python benchmarks/onnx_ladder_time.py [--shallowest 16] [--deepest 256] [--family mlp]

The step of `onnx_ladder` is written as two files: in its own order, and with each segment of the forward made again before
its first use in the backward. Both run on one thread, in turns; `time_ratio` is the median over rounds of one over the other,
in seconds of the processor, to which other programs do not add.
Peaks are measured by the counting allocator. Both files make the same loss and the same weights, to the bit. Each row is kept as
soon as it is there.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime

import neaptide.onnx
from bench_record import say
from neaptide.cost.onnxruntime.model_files import measured_peak
from neaptide.cost.onnxruntime.process import RuntimeProcess
from neaptide.frontends.onnx.model import OnnxModel
from neaptide.frontends.onnx.reader import read_model
from neaptide.runtime.measuring.timing import interleaved, median_ratio
from neaptide_corpus.onnx_models.feeds import random_feeds
from onnx_files_of_corpus import keep_rows
from onnx_ladder import DEPTHS, FAMILIES, Training, exponent, fewest_bytes

ROUNDS: Final = 15
_LEAST_NODES: Final = 4000
"""That one timed program runs: a short step runs several times."""
_AGAIN: Final = "_again"


def step_of(model: onnx.ModelProto) -> onnx.ModelProto:
    """The step of training of a model with the output `loss`: gradients by all weights, and updates."""
    names = [tensor.name for tensor in model.graph.initializer]
    return neaptide.onnx.grad(model, loss="loss", wrt=names, sgd=0.1)


def in_sequence(step: onnx.ModelProto, source: OnnxModel, sequence: Sequence[int]) -> onnx.ModelProto:
    """A step whose nodes run in a sequence, in which a node may come again: later readers read what it makes last."""
    made = onnx.ModelProto.FromString(step.SerializeToString())
    makers = {name: node for node in step.graph.node for name in node.output}
    nodes = [makers[source.file_name(node.outputs[0])] for node in source.graph.nodes]
    of_weights = [node for node in step.graph.node if not any(node is one for one in nodes)]
    now: dict[str, str] = {}
    del made.graph.node[:]
    made.graph.node.extend(of_weights)
    for number in sequence:
        node = made.graph.node.add()
        node.CopyFrom(nodes[number])
        node.ClearField("name")  # names are of one node each
        node.input[:] = [now.get(name, name) for name in nodes[number].input]
        node.output[:] = [
            now.get(name, "") + _AGAIN if name in now else name for name in nodes[number].output
        ]
        now.update(zip(nodes[number].output, node.output, strict=True))
    ends = {value.name for value in step.graph.output}
    assert not any(name in ends and last != name for name, last in now.items()), "an output is made again"
    onnx.checker.check_model(made)
    return made


def measure(family: str, depth: int, rounds: int) -> dict[str, Any]:
    """One step in both ways."""
    step = step_of(FAMILIES[family](depth))
    source = read_model(step)
    training = Training.whole(source.graph)
    forward = set(training.forward)
    program = [*training.forward, *(node.id for node in training.graph.nodes if node.id not in forward)]
    again = fewest_bytes(training)
    files = {"plain": in_sequence(step, source, program), "sqrt(n)": in_sequence(step, source, again)}
    feeds = random_feeds(step)
    sessions = {name: session(model) for name, model in files.items()}
    answers = {name: one.run(None, feeds) for name, one in sessions.items()}
    pairs = zip(*answers.values(), strict=True)
    calls = max(1, _LEAST_NODES // len(program))
    runs = {name: partial(repeated, one, feeds, calls) for name, one in sessions.items()}
    times = interleaved(runs, rounds)
    ratio = median_ratio(times["sqrt(n)"].cpu_s, times["plain"].cpu_s)
    return {
        "case": f"{family} {depth}",
        "family": family,
        "depth": depth,
        "nodes": len(program),
        "plain_seconds": float(np.median(times["plain"].cpu_s)) / calls,
        "sqrt_seconds": float(np.median(times["sqrt(n)"].cpu_s)) / calls,
        "time_ratio": ratio.ratio,
        "time_ratio_interval": [ratio.low, ratio.high],
        "work_ratio": training.work(again) / training.work(program),
        "most_runs_of_a_node": int(np.bincount(again).max()),
        "is_equal": all(np.array_equal(one, other) for one, other in pairs),
        **peaks(files, feeds),
    }


def repeated(one: onnxruntime.InferenceSession, feeds: Mapping[str, Any], times: int) -> None:
    for _ in range(times):
        one.run(None, feeds)


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = neaptide.onnx.session_options()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def peaks(files: Mapping[str, onnx.ModelProto], feeds: Mapping[str, Any]) -> dict[str, int]:
    """Measured bytes of a run of each; the updated weights, which are the caller's, are in them."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, RuntimeProcess() as process:
        for name, model in files.items():
            path = Path(folder) / "step.onnx"
            onnx.save(model, path)
            key = "plain" if name == "plain" else "sqrt"
            found[f"{key}_measured_bytes"] = measured_peak(path, feeds, process=process).peak_bytes
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shallowest", type=int, default=DEPTHS[0])
    parser.add_argument("--deepest", type=int, default=256)
    parser.add_argument("--family", choices=FAMILIES, action="append")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    every = [f"{family} {depth}" for family in FAMILIES for depth in DEPTHS]
    for family in given.family or FAMILIES:
        depths = [depth for depth in DEPTHS if given.shallowest <= depth <= given.deepest]
        own = []
        for depth in depths:
            own.append(measure(family, depth, given.rounds))
            say(" ".join(f"{name}={value}" for name, value in own[-1].items()))
            keep_rows("onnx_ladder_time", own[-1:], every, {"rounds": given.rounds})
        for key in ("plain_measured_bytes", "sqrt_measured_bytes") if len(own) > 1 else ():
            say(f"{family}: exponent of {key} {exponent(depths, [row[key] for row in own]):.3f}")


if __name__ == "__main__":
    main()
