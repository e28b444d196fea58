"""Small `.tflite` models for tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neaptide_corpus.tflite_writer import TfliteFile


def chain(length: int = 3, shape: tuple[int, ...] = (1, 4)) -> TfliteFile:
    """RELU after RELU."""
    file = TfliteFile()
    one = file.tensor("x", shape)
    file.inputs = [one]
    for index in range(length):
        made = file.tensor(f"y{index}", shape)
        file.operator("RELU", [one], [made])
        one = made
    file.outputs = [one]
    return file


def reshaped(shape: tuple[int, ...] = (1, 2, 32, 32)) -> TfliteFile:
    """RELU, RESHAPE of its result, RELU, and RESHAPE of a weight, added to it."""
    file = chain(1, shape)
    size = int(np.prod(shape))
    rows = file.weight("rows", np.array([1, size], np.int32))
    flat, after, made, out = (file.tensor(name, (1, size)) for name in ("flat", "after", "made", "out"))
    file.operator("RESHAPE", [file.outputs[0], rows], [flat])
    file.operator("RELU", [flat], [after])
    weight = file.weight("weight", np.linspace(-1, 1, size, dtype=np.float32))
    file.operator("RESHAPE", [weight, rows], [made])
    file.operator("ADD", [after, made], [out], (0,))
    file.outputs = [out]
    return file


def reduced(name: str = "MEAN", dtype: str = "int8") -> TfliteFile:
    """A reduction of an image over its rows and columns, which takes scratch."""
    file = TfliteFile()
    scales = (0.1,) if dtype == "int8" else ()
    image = file.tensor("image", (1, 8, 8, 40), dtype, scales=scales)
    axes = file.weight("axes", np.array([1, 2], np.int32))
    mean = file.tensor("mean", (1, 40), dtype, scales=scales)
    file.operator(name, [image, axes], [mean], (0,))
    file.inputs, file.outputs = [image], [mean]
    return file


def enlarged(dtype: str = "int8") -> TfliteFile:
    """A transposed convolution, which adds up in scratch if it is quantized."""
    file, draw = TfliteFile(), np.random.default_rng(0)
    scales = (0.1,) if dtype == "int8" else ()
    image = file.tensor("image", (1, 4, 4, 3), dtype, scales=scales)
    shape = file.weight("shape", np.array([1, 8, 8, 5], np.int32))
    weights = draw.integers(-9, 9, (5, 2, 2, 3)).astype(dtype)
    given = {"scales": (0.01,) * 5} if dtype == "int8" else {}
    bias = file.weight("bias", np.zeros(5, np.int32 if dtype == "int8" else np.float32), **given)
    made = file.tensor("large", (1, 8, 8, 5), dtype, scales=scales)
    kernel = file.weight("weights", weights, **({"scales": (0.1,) * 5} if dtype == "int8" else {}))
    file.operator("TRANSPOSE_CONV", [shape, kernel, image, bias], [made], (1, 2, 2, 0))
    file.inputs, file.outputs = [image], [made]
    return file


def elementwise(name: str, dtype: str, operands: int) -> TfliteFile:
    """RELU, then an operator on its result, which has 517 elements, and RELU of that; a second operand comes from the input."""
    file = TfliteFile()

    def row(label: str) -> int:
        # TANH and LOGISTIC ask for scales of theirs.
        scale = {"TANH": 1 / 128, "LOGISTIC": 1 / 256}.get(name, 0.05) if label == "made" else 0.05
        return file.tensor(label, (1, 1, 1, 517), dtype, scales=(scale,) if dtype == "int8" else ())

    image, first, second = row("x"), row("first"), row("second")
    made, out = row("made"), row("out")
    file.operator("RELU", [image], [first])
    given = [first]
    if operands == 2:
        file.operator("RELU6", [image], [second])
        given.append(second)
    if name == "PRELU":
        slopes = np.linspace(-1, 1, 517).astype(dtype)[None, None, :]
        given.append(file.weight("slopes", slopes, scales=(0.1,) if dtype == "int8" else ()))
    zero = -128 if (dtype, name) == ("int8", "LOGISTIC") else 0
    file.tensors[made] = replace(file.tensors[made], zero_point=zero)
    file.operator(name, given, [made], (0,) if name in {"ADD", "SUB", "MUL"} else ())
    file.operator("RELU", [made], [out])
    file.inputs, file.outputs = [image], [out]
    return file


def filtered() -> TfliteFile:
    """Two SVDF layers on one variable each, which they overwrite."""
    file, draw = TfliteFile(), np.random.default_rng(0)
    one = file.tensor("x", (1, 6))
    file.inputs = [one]
    for index in range(2):
        width = file.tensors[one].shape[1]
        weights = file.weight(f"features{index}", draw.normal(size=(8, width)).astype(np.float32))
        times = file.weight(f"times{index}", draw.normal(size=(8, 5)).astype(np.float32))
        bias = file.weight(f"bias{index}", draw.normal(size=8).astype(np.float32))
        state = file.tensor(f"state{index}", (1, 40), variable=True)
        made = file.tensor(f"y{index}", (1, 8))
        file.operator("SVDF", [one, weights, times, bias, state], [made], (1, 0))
        one = made
    file.outputs = [one]
    return file


def nested(depth: int) -> TfliteFile:
    """IF whose branches run IF, so many times, around a RELU of one map."""
    files = [TfliteFile() for _ in range(depth + 1)]
    for level, file in enumerate(files):
        flag, one = file.tensor("flag", (1,), "bool"), file.tensor("x", (1, 1024))
        made = file.tensor("y", (1, 1024))
        file.inputs, file.outputs = [flag, one], [made]
        if level == depth:
            file.operator("RELU", [one], [made])
        else:
            file.operator("IF", [flag, flag, one], [made], (level + 1, level + 1))
    first, *further = files
    first.further = further
    return first


def calling(file: TfliteFile) -> TfliteFile:
    """A network, and beside it a counter that WHILE brings to 3 and an IF whose branches read the image: one adds it up."""
    image = file.tensors[file.inputs[0]]
    count, flag = file.tensor("count", (1,), "int32"), file.tensor("flag", (1,), "bool")
    later, chosen = file.tensor("later", (1,), "int32"), file.tensor("chosen", image.shape, image.dtype)
    chosen_like = {"scales": image.scales, "zero_point": image.zero_point}
    file.tensors[chosen] = replace(file.tensors[chosen], **chosen_like)
    file.inputs.append(count)
    file.outputs += [later, chosen]

    def number(graph: TfliteFile, value: int) -> int:
        return graph.weight(str(value), np.array([value], np.int32))

    def branch(length: int) -> TfliteFile:
        made = TfliteFile()
        one = made.tensor("x", image.shape, image.dtype, **chosen_like)
        made.inputs = [one]
        for index in range(length):
            next_one = made.tensor(f"y{index}", image.shape, image.dtype, **chosen_like)
            made.operator("RELU", [one], [next_one])
            one = next_one
        made.outputs = [one]
        return made

    compared, added = TfliteFile(), TfliteFile()
    for graph, name, dtype, value in ((compared, "LESS", "bool", 3), (added, "ADD", "int32", 1)):
        graph.inputs = [graph.tensor("n", (1,), "int32")]
        graph.outputs = [graph.tensor("made", (1,), dtype)]
        graph.operator(name, [graph.inputs[0], number(graph, value)], graph.outputs, (0,) * (name == "ADD"))
    file.operator("LESS", [count, number(file, 0)], [flag])
    file.operator("WHILE", [count], [later], (1, 2))
    file.operator("IF", [flag, file.inputs[0]], [chosen], (3, 4))
    file.further = [compared, added, branch(1), branch(3)]
    return file
