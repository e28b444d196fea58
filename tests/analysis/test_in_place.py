from neaptide.analysis.in_place import NotInPlace, in_place_fits
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.ir.builder import GraphBuilder
from neaptide.ops import registry
from together import together


def reasons(build):
    """What the last node of a program over `h: f32[4, 6]` may do with each operand, by name."""
    b = GraphBuilder("one", registry())
    x = b.input("x", (4, 6))
    (h,) = b.node("aten.sin.default", x, outputs=["h: f32[4, 6]"])
    build(b, x, h)
    graph = b.finish()
    fits = in_place_fits(graph, graph.nodes[-1], registry(), evaluate_storage_bytes(graph))
    return {graph.values[fit.operand].name: fit.reason for fit in fits}


def test_elementwise_result_fits_on_either_operand():
    def build(b, x, h):
        (g,) = b.node("aten.cos.default", x, outputs=["g: f32[4, 6]"])
        b.node("aten.mul.Tensor", h, g, outputs=["y: f32[4, 6]"])

    assert reasons(build) == {"h": None, "g": None}


def test_same_operand_twice_is_one_row():
    assert reasons(lambda b, x, h: b.node("aten.mul.Tensor", h, h, outputs=["y: f32[4, 6]"])) == {"h": None}


@together(
    ("op", "output"),
    [
        ("aten.mm.default", "y: f32[4, 6]"),
        ("aten.convolution.default", "y: f32[4, 6]"),
        ("aten._softmax.default", "y: f32[4, 6]"),
        ("aten.sum.dim_IntList", "y: f32[4, 1]"),
        ("aten.avg_pool2d.default", "y: f32[4, 6]"),
        ("aten.gather.default", "y: f32[4, 6]"),
        ("aten.clone.default", "y: f32[4, 6] strides(1, 4)"),
    ],
)
def test_kernels_of_several_passes_never_fit(op, output):
    assert reasons(lambda b, x, h: b.node(op, h, outputs=[output])) == {"h": NotInPlace.KERNEL}


def test_layer_norm_never_fits():
    def build(b, x, h):
        outputs = ["y: f32[4, 6]", "mean: f32[4, 1]", "rstd: f32[4, 1]"]
        b.node("aten.native_layer_norm.default", h, [6], None, None, 1e-5, outputs=outputs)

    assert set(reasons(build).values()) == {NotInPlace.KERNEL}


def test_random_kernel_never_fits():
    def build(b, x, h):
        b.node("aten.native_dropout.default", h, 0.5, True, outputs=["y: f32[4, 6]", "m: bool[4, 6]"])

    assert set(reasons(build).values()) == {NotInPlace.KERNEL}


def test_view_and_result_in_place_have_no_row():
    assert (
        reasons(lambda b, x, h: b.node("aten.t.default", h, outputs=["v: f32[6, 4] strides(1, 6) @h"])) == {}
    )
    assert reasons(lambda b, x, h: b.node("aten.relu_.default", h, outputs=["v: f32[4, 6] @h"])) == {}


def test_unknown_operation_is_refused():
    found = reasons(lambda b, x, h: b.node("mylib.gelu.default", h, outputs=["y: f32[4, 6]"]))
    assert found == {"h": NotInPlace.UNKNOWN_OP}


def test_effects_are_refused():
    found = reasons(lambda b, x, h: b.node("aten.neg.default", h, outputs=["y: f32[4, 6]"], rng="cpu"))
    assert found == {"h": NotInPlace.IMPURE}


def test_growth_by_broadcasting_is_refused():
    def build(b, x, h):
        (g,) = b.node("aten.cos.default", x, outputs=["g: f32[1, 6]"])
        b.node("aten.add.Tensor", g, h, outputs=["y: f32[4, 6]"])

    assert reasons(build) == {"g": NotInPlace.BROADCAST, "h": None}


def test_growth_by_dtype_is_refused():
    def build(b, x, h):
        (g,) = b.node("aten.gt.Scalar", h, 0.0, outputs=["g: bool[4, 6]"])
        b.node("aten.mul.Tensor", g, h, outputs=["y: f32[4, 6]"])

    assert reasons(build) == {"g": NotInPlace.DTYPE, "h": None}


def test_other_strides_are_refused():
    def build(b, x, h):
        (v,) = b.node("aten.t.default", h, outputs=["v: f32[6, 4] strides(1, 6) @h"])
        b.node("aten.neg.default", v, outputs=["y: f32[6, 4]"])

    assert reasons(build) == {"v": NotInPlace.STRIDES}


def test_part_of_a_larger_block_is_refused():
    def build(b, x, h):
        (v,) = b.node("aten.slice.Tensor", h, 0, 0, 2, outputs=["v: f32[2, 6] @h"])
        b.node("aten.neg.default", v, outputs=["y: f32[2, 6]"])

    assert reasons(build) == {"v": NotInPlace.BYTES}


def test_offset_is_a_matter_of_layout():
    def build(b, x, h):
        (v,) = b.node("aten.slice.Tensor", h, 0, 2, 4, outputs=["v: f32[2, 6] offset(12) @h"])
        b.node("aten.neg.default", v, outputs=["y: f32[2, 6]"])

    assert reasons(build) == {"v": NotInPlace.STRIDES}


def test_same_bytes_in_two_layouts_are_refused():
    def build(b, x, h):
        (v,) = b.node("aten.as_strided.default", h, [4, 6], [1, 4], outputs=["v: f32[4, 6] strides(1, 4) @h"])
        b.node("aten.mul.Tensor", h, v, outputs=["y: f32[4, 6]"])

    assert reasons(build) == {"h": NotInPlace.OVERLAP}


def test_operand_that_the_row_does_not_name_is_refused():
    def build(b, x, h):
        (mask,) = b.node("aten.gt.Scalar", x, 0.0, outputs=["mask: bool[4, 6]"])
        b.node("aten.masked_fill.Scalar", h, mask, 0.0, outputs=["y: f32[4, 6]"])

    assert reasons(build) == {"h": None, "mask": NotInPlace.OPERAND}


def test_operand_of_which_only_the_shape_is_used_is_refused():
    def build(b, x, h):
        b.node("aten.add.Tensor", x, h, outputs=["y: f32[4, 6]"], reads=[x])

    assert reasons(build) == {"x": None, "h": NotInPlace.SHAPE_ONLY}


def test_result_that_leaves_bytes_unused_is_refused():
    found = reasons(lambda b, x, h: b.node("aten.neg.default", h, outputs=["y: f32[4, 6] bytes(256)"]))
    assert found == {"h": NotInPlace.RESULT_LAYOUT}


def test_other_device_is_refused():
    b = GraphBuilder("two", registry())
    x = b.input("x", (4,), device="cuda:0")
    (h,) = b.node("aten.sin.default", x, outputs=["h: f32[4] device(cuda:0)"])
    b.node("aten.neg.default", h, outputs=["y: f32[4]"])
    graph = b.finish()
    (fit,) = in_place_fits(graph, graph.nodes[-1], registry(), evaluate_storage_bytes(graph))
    assert fit.reason is NotInPlace.DEVICE
