"""ONNX models with damaged or hostile parts: an error of ours in one sentence, never one of a library, and no crash."""

from __future__ import annotations

import random
from contextlib import suppress

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

from neaptide.errors import NeaptideError, TargetError
from neaptide.frontends.onnx.reader import read_model
from neaptide.ops.onnx import registry
from neaptide.schedule.order.of_model import model_problem
from support.together import together

NUMBERS = (0, 1, -1, 2, 3, -2, 1 << 31, 1 << 40, -(1 << 40), (1 << 63) - 1, -(1 << 63), 100)
TEXTS = ("", "x", "y", "s", "nothing", "\x00")
OPERATORS = (
    "Conv",
    "If",
    "Loop",
    "Concat",
    "Slice",
    "SequenceAt",
    "Foo",
    "Unsqueeze",
    "Range",
    "NonZero",
    "LSTM",
    "Constant",
)


def tensor(name: str, *dims: int, kind: int = TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, dims)


def network() -> ModelProto:
    """A convolution, arithmetic on shapes, a condition, a slice and a dense layer."""
    branches = [
        helper.make_graph([helper.make_node(op, ["p"], ["o"])], op, [], [tensor("o", 1, 4, 4, 4)])
        for op in ("Relu", "Neg")
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("ReduceSum", ["p"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "t"], ["g"]),
        helper.make_node("If", ["g"], ["y"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Slice", ["y", "start", "end"], ["part"]),
        helper.make_node("Shape", ["part"], ["n"]),
        helper.make_node("Gather", ["n", "start"], ["n0"]),
        helper.make_node("Concat", ["n0", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["part", "shape"], ["flat"]),
        helper.make_node("Gemm", ["flat", "fw"], ["z"], transB=1),
    ]
    weights = {
        "w": np.ones((4, 3, 3, 3), np.float32),
        "t": np.array(1, np.float32),
        "start": np.array([0], np.int64),
        "end": np.array([1], np.int64),
        "rest": np.array([-1], np.int64),
        "fw": np.ones((5, 64), np.float32),
    }
    arrays = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(
        nodes,
        "net",
        [tensor("x", 1, 3, 8, 8)],
        [tensor("z", 1, 5)],
        arrays,
        value_info=[tensor("c", 1, 4, 8, 8)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def planned(model: ModelProto) -> None:
    model_problem(read_model(model).graph, registry())


def changed(change) -> ModelProto:
    model = network()
    change(model.graph)
    return model


def as_unsqueeze(graph):
    graph.node[4].op_type = "Unsqueeze"


def with_reference(graph):
    graph.node[0].attribute[0].ref_attr_name = "of nothing"


def with_other_type(graph):
    graph.node[0].attribute[0].CopyFrom(helper.make_attribute("kernel_shape", 3.5))


def without_type(graph):
    graph.node[0].attribute[0].type = AttributeProto.UNDEFINED


def without_branch(graph):
    del graph.node[4].attribute[0]


def with_two_indices(graph):
    graph.node[1].op_type = "NonZero"
    graph.node[1].input.append("x")


def of_negative_size(graph):
    graph.value_info[0].type.tensor_type.shape.dim[0].dim_value = -(1 << 63)


def of_another_size(graph):
    shape = graph.node[9]
    shape.op_type = "Dropout"
    del shape.input[1]
    graph.value_info.append(tensor("flat", 1, 128))


@together(
    ("change", "words"),
    [
        (of_another_size, "makes [1, 128] of [1, 4, 4, 4]"),
        (as_unsqueeze, "Unsqueeze 'y' has 1 inputs, and its operator 2 to 2"),
        (with_two_indices, "has 2 inputs"),
        (with_reference, "takes 'kernel_shape' from a function, and is in none"),
        (with_other_type, "has an attribute 'kernel_shape' of the wrong type"),
        (without_type, "without a type"),
        (without_branch, "lacks the attribute"),
        (of_negative_size, "a dim of -9223372036854775808"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nodes_that_break_the_form_of_their_operator_are_told(change, words):
    with pytest.raises(TargetError) as error:
        planned(changed(change))
    assert words in str(error.value)


def test_names_that_are_no_text_are_told():
    data = network().SerializeToString().replace(b"kernel_shape", b"kernel\xff\xfe\xf9hap")
    with pytest.raises(TargetError, match="no text"):
        planned(ModelProto.FromString(data))


def test_versions_beyond_every_operator_set_are_told():
    model = network()
    model.opset_import.append(helper.make_opsetid("mine", 1 << 40))
    with pytest.raises(TargetError, match="names version"):
        planned(model)


def messages(message) -> list:
    """A message and all within it."""
    found = [message]
    for field, content in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for inner in content if field.is_repeated else [content]:
                found += messages(inner)
    return found


def mutate(model: ModelProto, draw: random.Random) -> None:
    """Changes one field of one message: taken away, doubled, or of another content."""
    message = draw.choice(messages(model))
    field = draw.choice(message.DESCRIPTOR.fields)
    content = getattr(message, field.name)
    if field.type == field.TYPE_STRING:
        new = draw.choice(OPERATORS if field.name == "op_type" else TEXTS)
    elif field.type == field.TYPE_BYTES:
        new = draw.choice((b"", b"abc", b"\xff" * 64))
    elif field.type == field.TYPE_ENUM:
        new = draw.randrange(25)
    else:
        new = draw.choice(NUMBERS)
    with suppress(ValueError, TypeError):  # a number that the field does not hold
        if not field.is_repeated:
            if field.type != field.TYPE_MESSAGE:
                setattr(message, field.name, new)
            elif draw.random() < 0.5:
                message.ClearField(field.name)
            else:
                content.SetInParent()
        elif len(content) and draw.random() < 0.4:
            del content[draw.randrange(len(content))]
        elif field.type == field.TYPE_MESSAGE:
            content.append(draw.choice(content)) if len(content) else content.add()
        elif len(content):
            content[draw.randrange(len(content))] = new
        else:
            content.append(new)


def change_numbers(model: ModelProto, draw: random.Random) -> None:
    """Changes a number of a weight of integers: shapes, axes, starts and ends."""
    lists = [t for t in model.graph.initializer if t.data_type == TensorProto.INT64 and list(t.dims) == [1]]
    if not lists:
        return  # an earlier change has taken them away
    weight = draw.choice(lists)
    weight.CopyFrom(numpy_helper.from_array(np.array([draw.choice(NUMBERS)]), weight.name))


def damaged(seed: int) -> None:
    draw, model = random.Random(seed), network()
    for _ in range(draw.choice((1, 1, 2, 4))):
        (mutate if draw.random() < 0.7 else change_numbers)(model, draw)
    with suppress(NeaptideError):
        planned(model)


def test_damaged_models_are_no_crash():
    for seed in range(250):
        damaged(seed)


@pytest.mark.slow
def test_more_damaged_models_are_no_crash():
    for seed in range(1000, 8000):
        damaged(seed)


def test_flipped_bytes_are_no_crash(tmp_path):
    draw, data = random.Random(0), network().SerializeToString()
    for _ in range(120):
        content = bytearray(data)
        for _ in range(draw.choice((1, 3))):
            content[draw.randrange(len(content))] = draw.randrange(256)
        (tmp_path / "m.onnx").write_bytes(
            content[: draw.choice((len(content), draw.randrange(len(content))))]
        )
        with suppress(NeaptideError):
            model_problem(read_model(tmp_path / "m.onnx").graph, registry())
