"""Rows of ONNX operators against the schemas of the onnx package, and formulas against numbers worked out by hand."""

from __future__ import annotations

import pytest
from onnx import defs

from frontends.onnx.onnx_files import model, node, tensor, weight
from neaptide.frontends.onnx.reader import read_model
from neaptide.ir.registry import Call, Trait
from neaptide.ops.onnx import registry
from neaptide.ops.onnx.table import meaning, operator_of
from support.together import together

FIRST_OPSET = 7
ROWS = [row for row in registry() if row.name.startswith("onnx.")]
OPERATORS = sorted({operator_of(row.name) for row in ROWS})


def test_every_row_is_for_a_version_of_a_schema_and_every_version_of_an_operator_has_one():
    listed = {tuple(row.name.split(".")[1:]) for row in ROWS}
    known = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "" and not schema.deprecated:
            known.setdefault(schema.name, set()).add(schema.since_version)
    for name in OPERATORS:
        versions = known[name]
        before = [version for version in versions if version <= FIRST_OPSET]
        first = max(before, default=0)
        wanted = {version for version in versions if version >= first}
        assert {int(v) for n, v in listed if n == name} == wanted, name
    assert len(OPERATORS) >= 90


def test_results_on_operands_are_of_operators_whose_result_may_have_their_type():
    for row in ROWS:
        if not row.in_place or row.is_a(Trait.VIEW):
            continue
        _, name, version = row.name.split(".")
        schema = defs.get_schema(name, int(version), "")
        assert len(schema.outputs) >= 1
        assert row.in_place[0] < len(schema.inputs)


def test_a_token_without_versions_is_refused():
    with pytest.raises(ValueError, match="'Relu' names no operator"):
        meaning()("Relu")


@together(
    ("line", "attributes", "flops"),
    [
        ("y = Conv(image, w)", {}, 2 * (4 * 6 * 6) * (3 * 3 * 3)),
        ("y = Conv(image, w)", {"strides": [2, 2]}, 2 * (4 * 3 * 3) * (3 * 3 * 3)),
        ("y = ConvTranspose(image, t)", {}, 2 * (3 * 8 * 8) * (5 * 2 * 2)),
        ("y = Gemm(a, b)", {"transB": 1}, 2 * 5 * 9 * 7),
        ("y = Gemm(a, c)", {"transA": 1}, 2 * 9 * 5 * 7),
        ("y = MatMul(a, d)", {}, 2 * 5 * 9 * 7),
        ("y = MaxPool(image)", {"kernel_shape": [2, 2]}, 3 * 7 * 7 * 4),
        ("y = LSTM(steps, lw, lr)", {"hidden_size": 2}, 2 * 6 * (8 * 3 + 8 * 2)),
        ("y = Add(a, a)", {}, 45),
        ("y = ReduceSum(a)", {}, 45),
        ("y = Reshape(a, shape)", {}, 0),
    ],
)
def test_work_is_counted_from_shapes(line, attributes, flops):
    made = model(
        [node(line, **attributes)],
        [tensor("image", 1, 3, 8, 8), tensor("a", 5, 9), tensor("steps", 6, 1, 3)],
        [tensor("y", None)],
        [weight("w", 4, 3, 3, 3), weight("t", 3, 5, 2, 2), weight("b", 7, 9), weight("c", 5, 7), weight("d", 9, 7),
         weight("lw", 1, 8, 3), weight("lr", 1, 8, 2), weight("shape", 1, dtype="int64")], opset=18,
    )  # fmt: skip
    if "shape" in line:
        made.graph.initializer[-1].int64_data[:] = []
        made.graph.initializer[-1].raw_data = (45).to_bytes(8, "little")
    graph = read_model(made).graph
    (only,) = graph.nodes
    assert registry().require(only.op).flops(Call(graph, only)).evaluate() == flops
