from neaptide.analysis.in_place import in_place_operands
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.ir.builder import GraphBuilder
from neaptide.ops import registry
from support.together import together


def operands(*lines, device="cpu"):
    """Names of the operands that may hold what the last call makes, in a program over `x` and `h: f32[4, 6]`."""
    b = GraphBuilder("one", registry())
    made = {"x": b.input("x", (4, 6), device=device)}
    on = "" if device == "cpu" else f" device({device})"
    (made["h"],) = b.node("aten.sin.default", made["x"], outputs=[f"h: f32[4, 6]{on}"])
    for outputs, op, *args, kwargs in lines:
        found = b.node(
            op, *(made.get(a, a) if isinstance(a, str) else a for a in args), outputs=outputs, **kwargs(made)
        )
        made |= {text.partition(":")[0]: value for text, value in zip(outputs, found, strict=True)}
    graph = b.finish()
    fitting = in_place_operands(graph, graph.nodes[-1], registry(), evaluate_storage_bytes(graph))
    return {graph.values[value].name for value in fitting}


def call(output, op, *args, **kwargs):
    outputs = [output] if isinstance(output, str) else output
    return outputs, f"aten.{op}", *args, lambda _: kwargs


Y = "y: f32[4, 6]"
CASES = {
    "either operand": ({"h", "g"}, call("g: f32[4, 6]", "cos.default", "x"), call(Y, "mul.Tensor", "h", "g")),
    "one operand twice": ({"h"}, call(Y, "mul.Tensor", "h", "h")),
    "a product": (set(), call(Y, "mm.default", "h")),
    "a convolution": (set(), call(Y, "convolution.default", "h")),
    "a softmax": (set(), call(Y, "_softmax.default", "h")),
    "a sum": (set(), call("y: f32[4, 1]", "sum.dim_IntList", "h")),
    "a pool": (set(), call(Y, "avg_pool2d.default", "h")),
    "a gather": (set(), call(Y, "gather.default", "h")),
    "a copy": (set(), call("y: f32[4, 6] strides(1, 4)", "clone.default", "h")),
    "a norm": (set(), call([Y, "m: f32[4, 1]", "r: f32[4, 1]"], "native_layer_norm.default", "h", [6], None, None, 1e-5)),
    "a random kernel": (set(), call([Y, "m: bool[4, 6]"], "native_dropout.default", "h", 0.5, True)),
    "a view": (set(), call("v: f32[6, 4] strides(1, 6) @h", "t.default", "h")),
    "in place already": (set(), call("v: f32[4, 6] @h", "relu_.default", "h")),
    "an unknown operation": (set(), ([Y], "mylib.gelu.default", "h", lambda _: {})),
    "effects": (set(), call(Y, "neg.default", "h", rng="cpu")),
    "growth by broadcasting": ({"h"}, call("g: f32[1, 6]", "cos.default", "x"), call(Y, "add.Tensor", "g", "h")),
    "growth by dtype": ({"h"}, call("g: bool[4, 6]", "gt.Scalar", "h", 0.0), call(Y, "mul.Tensor", "g", "h")),
    "other strides": (set(), call("v: f32[6, 4] strides(1, 6) @h", "t.default", "h"), call("y: f32[6, 4]", "neg.default", "v")),
    "a part of a block": (set(), call("v: f32[2, 6] @h", "slice.Tensor", "h", 0, 0, 2), call("y: f32[2, 6]", "neg.default", "v")),
    "an offset": (set(), call("v: f32[2, 6] offset(12) @h", "slice.Tensor", "h", 0, 2, 4), call("y: f32[2, 6]", "neg.default", "v")),
    "two layouts": (
        set(),
        call("v: f32[4, 6] strides(1, 4) @h", "as_strided.default", "h", [4, 6], [1, 4]),
        call(Y, "mul.Tensor", "h", "v"),
    ),
    "an operand of another role": (
        {"h"},
        call("mask: bool[4, 6]", "gt.Scalar", "x", 0.0),
        call(Y, "masked_fill.Scalar", "h", "mask", 0.0),
    ),
    "only the shape is used": ({"x"}, ([Y], "aten.add.Tensor", "x", "h", lambda made: {"reads": [made["x"]]})),
    "bytes left unused": (set(), call("y: f32[4, 6] bytes(256)", "neg.default", "h")),
}  # fmt: skip


@together("name", CASES)
def test_a_result_fits_on_operands_that_its_kernel_may_overwrite_in_the_same_layout(name):
    expected, *lines = CASES[name]
    assert operands(*lines) == expected


def test_other_device_is_refused():
    assert operands(call(Y, "neg.default", "h"), device="cuda:0") == set()


@together(("updates", "expected"), [("u", {"a"}), ("a", set())])
def test_a_kernel_that_moves_elements_overwrites_no_operand_that_it_reads_once_more(updates, expected):
    from neaptide.ops.onnx import registry as onnx_registry
    from support.onnx_cases import graph_of

    made = f"a = Neg(x) y = ScatterElements(a, to, {updates})"
    graph = graph_of(f"g (float[3] x, float[3] u, int64[3] to) => (float[3] y) {{ {made} }}").graph
    sizes = evaluate_storage_bytes(graph)
    fitting = in_place_operands(graph, graph.nodes[-1], onnx_registry(), sizes)
    assert {graph.values[value].name for value in fitting} == expected
