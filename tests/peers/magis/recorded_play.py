"""Small recorded steps for tests, written by hand, and the numbers that their operations compute."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Form = list[dict[str, Any]]
_SAME = [[0, 0], [1, 1]]


class Tape:
    """Writes a recorded step node by node; ids are positions."""

    def __init__(self) -> None:
        self.form: Form = []

    def add(self, tag: str, shape, args=(), links=(), *, elems=None, weight=False, ms=0.01, **attrs) -> int:
        self.form.append(
            {
                "id": len(self.form),
                "tag": tag,
                "out_shape": list(shape),
                "in_shapes": [self.form[a]["out_shape"] for a in args],
                "args": list(args),
                "out_elems": math.prod(shape) if elems is None else elems,
                "latency_ms": ms,
                "is_weight": weight,
                "dim_links": [list(map(list, found)) for found in links],
                "attrs": attrs,
            }
        )
        return len(self.form) - 1


def perceptron(batch: int = 8, width: int = 6, layers: int = 3) -> Form:
    """A training step of matrix products and rectifiers: the forward, its backward, and an update for each weight."""
    tape = Tape()
    square = (width, width)
    rows = (batch, width)
    grad = tape.add("placeholder", rows, name="grad")
    label = tape.add("placeholder", rows, name="y_bar")
    weights = [tape.add("placeholder", square, weight=True, name=f"w{k}") for k in range(layers)]
    x = tape.add("placeholder", rows, name="x")
    forward = [[[0, 0], [1, -1]], [[0, -1], [1, 1]]]
    inputs, products = [], []
    for weight in weights:
        inputs.append(x)
        products.append(tape.add("matmul", rows, [x, weight], forward))
        x = tape.add("ewise.uni.relu", rows, [products[-1]], [_SAME])
    difference = tape.add("ewise.bin.sub", rows, [x, label], [_SAME, _SAME])
    tape.add("ewise.uni.const.pow", rows, [difference], [_SAME])
    back = tape.add("ewise.bin.mul", rows, [grad, difference], [_SAME, _SAME])
    for layer in reversed(range(layers)):
        mask = tape.add("ewise.uni.const.gt", rows, [products[layer]], [_SAME])
        back = tape.add("ewise.bin.mul", rows, [back, mask], [_SAME, _SAME])
        found = tape.add(
            "matmul",
            square,
            [inputs[layer], back],
            [[[0, -1], [1, 0]], [[0, -1], [1, 1]]],
            trans_a="True",
        )
        if layer:
            back = tape.add(
                "matmul",
                rows,
                [back, weights[layer]],
                [[[0, 0], [1, -1]], [[1, -1], [0, 1]]],
                trans_b="True",
            )
        tape.add("ewise.bin.add_", square, [weights[layer], found], [_SAME, _SAME])
    return tape.form


def transposed(node: dict[str, Any], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    left = a.T if node["attrs"].get("trans_a") == "True" else a
    right = b.T if node["attrs"].get("trans_b") == "True" else b
    return left @ right


def computed(form: Form, given: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    """By node, the numbers of a step of the operations above."""
    found = dict(given)
    for node in form:
        operands = [found[a] for a in node["args"]]
        match node["tag"]:
            case "placeholder":
                continue
            case "matmul":
                made = transposed(node, *operands)
            case "ewise.uni.relu":
                made = np.maximum(operands[0], 0)
            case "ewise.uni.const.gt":
                made = (operands[0] > 0).astype(float)
            case "ewise.uni.const.pow":
                made = operands[0] ** 2
            case "ewise.bin.sub":
                made = operands[0] - operands[1]
            case "ewise.bin.mul":
                made = operands[0] * operands[1]
            case "ewise.bin.add_":
                made = operands[0] + operands[1]
        found[node["id"]] = made
    return found
