"""Whatever a file holds, the command line answers with one sentence and an exit code, quickly and in little memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from frontends.onnx.onnx_files import model, numbers, tensor, two_branches
from neaptide.cli.main import main
from neaptide.cli.process import exit_codes

UNSUPPORTED = exit_codes.NOT_SUPPORTED


def saved(made):
    return made.SerializeToString()


def chain(count):
    nodes = [helper.make_node("Relu", [f"v{k}"], [f"v{k + 1}"]) for k in range(count)]
    return model(nodes, [tensor("v0", 4)], [tensor(f"v{count}", 4)])


def deep(depth):
    """Messages inside each other by hand: a model, its graph, a node, an attribute, a graph, and so on."""

    def field(number, content):
        size, digits = len(content), b""
        while size >= 128:
            digits, size = digits + bytes([size % 128 + 128]), size // 128
        return bytes([number * 8 + 2]) + digits + bytes([size]) + content

    graph = b""
    for _ in range(depth):
        graph = field(1, field(4, b"If") + field(5, field(6, graph)))
    return b"\x08\x08" + field(7, graph) + field(8, b"\x10\x14")


def external(name, content=b"\0" * 64, **told):
    """A model whose weight lies in a file beside it."""
    made = model(["y = Add(x, w)"], [tensor("x", 4)], [tensor("y", 4)])
    put = made.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[4])
    put.data_location = TensorProto.EXTERNAL
    for key, value in {"location": name, **told}.items():
        put.external_data.add(key=key, value=str(value))
    return saved(made), {name: content} if content is not None else {}


def broken_opset(version):
    made = two_branches()
    made.opset_import[0].version = version
    return saved(made)


def wrong_data():
    made = two_branches()
    made.graph.initializer[0].raw_data = b"\0\0\0\0"
    return saved(made)


def sequences():
    pieces = model(
        ["s = SplitToSequence(x)", "y = ConcatFromSequence(s)"], [tensor("x", 2, 2)], [tensor("y", None)]
    )
    pieces.graph.node[1].attribute.append(helper.make_attribute("axis", 0))
    return saved(pieces)


def strings():
    text = helper.make_tensor_value_info("x", TensorProto.STRING, [2])
    return saved(
        model(["y = Identity(x)"], [text], [helper.make_tensor_value_info("y", TensorProto.STRING, [2])])
    )


def sparse():
    made = model(["y = Relu(x)"], [tensor("x", 2)], [tensor("y", 2)])
    values = numpy_helper.from_array(np.ones(1, dtype=np.float32), "w")
    made.graph.sparse_initializer.add(values=values, indices=numbers("i", 0), dims=[2])
    return saved(made)


def optional():
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    given = helper.make_value_info("x", kind)
    return saved(model(["y = OptionalGetElement(x)"], [given], [tensor("y", 2)]))


def relu(x=(2,), y=(2,), lines=("y = Relu(x)",), **more):
    return saved(model(lines, [tensor("x", *x)], [tensor("y", *y)], **more))


# What the file holds, words of the answer, the exit code.
CASES = {
    "truncated": (saved(two_branches())[:500], "is no ONNX model", exit_codes.USAGE),
    "empty": (b"", "holds no ONNX model", exit_codes.USAGE),
    "no protobuf": (b"#!/bin/sh\necho no model\n" * 10, "is no ONNX model", exit_codes.USAGE),
    "old opset": (broken_opset(6), "is of opset 6", exit_codes.USAGE),
    "future opset": (broken_opset(999), "is of opset 999", exit_codes.USAGE),
    "cycle": (relu(lines=("y = Add(x, z)", "z = Relu(y)")), "before it is made", exit_codes.USAGE),
    "unmade": (relu(lines=("y = Add(x, z)",)), "which nothing makes", exit_codes.USAGE),
    "twice": (relu(lines=("y = Relu(x)", "y = Exp(x)")), "'y' is made twice", exit_codes.USAGE),
    "no output": (relu(y=(2,), lines=("z = Relu(x)",)), "'y' is made by no node", exit_codes.USAGE),
    "unknown operator": (relu(lines=("y = Nonsense(x)",)), "Nonsense", UNSUPPORTED),
    "negative dim": (relu(x=(-3,)), "a dim of -3", exit_codes.USAGE),
    "huge dim": (relu(x=(1 << 40,)), "no memory holds such a tensor", exit_codes.USAGE),
    "huge product": (relu(x=(1 << 20, 1 << 20, 1 << 20)), "no memory holds", exit_codes.USAGE),
    "huge weight": (
        relu(
            lines=("w = ConstantOfShape(s)", "y = Add(x, w)"), weights=[numbers("s", 1 << 40)], y=(None,)
        ), "no memory holds such a tensor", exit_codes.USAGE,
    ),
    "huge range": (
        relu(
            lines=("r = Range(a, b, c)", "f = Cast(r)", "y = Add(x, f)"), y=(None,),
            weights=[helper.make_tensor(name, 7, [], [n]) for name, n in (("a", 0), ("b", 1 << 40), ("c", 1))],
        ), "", None,
    ),
    "shape of data": (
        relu(lines=("n = NonZero(x)", "y = Abs(n)"), y=(None,)), "is not known", UNSUPPORTED
    ),
    "contradiction": (
        relu(x=(2, 3), y=(None,), lines=("y = MatMul(x, x)",)), "is not known", UNSUPPORTED
    ),
    "declared contradiction": (
        relu(x=(2, 3), y=(2, 3), lines=("y = MatMul(x, x)",)), "cannot run on float32[2, 3]", exit_codes.USAGE
    ),
    "free dim": (relu(x=("batch",), y=("batch",)), "dims without a size", exit_codes.USAGE),
    "short weight": (wrong_data(), "the weight 'w0' has 4 bytes", exit_codes.USAGE),
    "sequence": (sequences(), "SplitToSequence", UNSUPPORTED),
    "string": (strings(), "holds strings", UNSUPPORTED),
    "sparse": (sparse(), "is sparse", UNSUPPORTED),
    "optional": (optional(), "the input 'x'", UNSUPPORTED),
    "data gone": (external("w.bin", None), "lies in a file that is not there", exit_codes.USAGE),
    "data short": (external("w.bin", b"1234"), "needs 16 bytes from 0 on", exit_codes.USAGE),
    "data outside": (external("../w.bin", None), "outside the folder", exit_codes.USAGE),
    "data absolute": (external("/etc/hostname", None), "outside the folder", exit_codes.USAGE),
    "data length": (external("w.bin", length=3), "the model says that it has 3", exit_codes.USAGE),
    "data offset": (external("w.bin", offset="many"), "is not told well", exit_codes.USAGE),
    "many nodes": (saved(chain(100_000)), "more than 50000 nodes", UNSUPPORTED),
    "deep": (deep(1_000), "is no ONNX model", exit_codes.USAGE),
}  # fmt: skip


def put(folder, content):
    data, files = content if isinstance(content, tuple) else (content, {})
    target = folder / "inner"
    target.mkdir()
    for name, inside in files.items():
        (target / name).write_bytes(inside)
    path = target / "model.onnx"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", CASES)
def test_one_sentence_and_an_exit_code(name, tmp_path, capsys):
    content, words, code = CASES[name]
    path = put(tmp_path, content)
    for command in (["order"], ["plan", "--passes", "none"]):
        found = main([command[0], str(path), *command[1:]])
        answer = capsys.readouterr().err
        assert code is None or (found, words in answer) == (code, True), answer
        assert found != exit_codes.BUG
        assert "Traceback" not in answer


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(),
    reason="the system does not tell the most memory that a process had",
)
@pytest.mark.parametrize("name", ["many nodes", "huge weight", "huge range", "deep"])
def test_little_memory_and_time_are_taken(name, tmp_path):
    path = put(tmp_path, CASES[name][0])
    script = (
        "import sys, time; from neaptide.cli.main import main; main(['order', sys.argv[1]]); "
        "lines = dict(line.split(':') for line in open('/proc/self/status')); "
        "print(lines['VmHWM'].split()[0], time.process_time())"
    )
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    kib, seconds = map(float, done.stdout.split()[-2:])
    assert kib < 300 * 1024
    assert seconds < 5
