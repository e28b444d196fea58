import pytest

from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import Source
from neaptide.ir.schedule import Schedule
from neaptide.layout.in_place.norm_from_output import NotRecoverable, norm_from_output_effect
from neaptide.ops import registry

FORWARD, BACKWARD = Source(phase="forward"), Source(phase="backward")
ROW = "f32[1, 4, 64]"  # 1 KiB
STATISTICS = ["mean: f32[4]", "rstd: f32[4]"]


class Block:
    """A linear layer, batch norm, an activation and a linear layer, with their backward."""

    def __init__(self, activation):
        self.b = GraphBuilder("block", registry())
        self.x = self.b.input("x", (1, 4, 64))
        self.w = self.b.input("w", (64, 64))
        self.c = self.b.input("c", (4,))
        self.h = self.forward("aten.matmul.default", self.x, self.w, name="h")
        self.y, mean, rstd = self.b.node(
            *("aten.native_batch_norm.default", self.h, self.c, self.c, None, None, True, 0.1, 1e-5),
            outputs=[f"y: {ROW}", *STATISTICS],
            source=FORWARD,
        )
        activated = activation(self)
        self.out = self.forward("aten.matmul.default", activated, self.w, name="out")
        # The peak: eight times as much as a row.
        (wide,) = self.b.node(
            "aten.repeat.default", self.out, outputs=["wide: f32[8, 4, 64]"], source=FORWARD
        )
        self.b.node("aten.sum.default", wide, outputs=["loss: f32[]"], source=FORWARD)
        gradient = self.backward("aten.matmul.default", self.out, self.w, name="g_activated")
        self.weight_gradient = self.backward("aten.bmm.default", gradient, activated, name="g_w")
        self.b.node(
            *(
                "aten.native_batch_norm_backward.default",
                gradient,
                self.h,
                self.c,
                None,
                None,
                mean,
                rstd,
                True,
            ),
            *(1e-5, [True, True, True]),
            outputs=[f"g_h: {ROW}", "g_c: f32[4]", "g_b: f32[4]"],
            source=BACKWARD,
        )
        self.b.output(self.weight_gradient)

    def forward(self, op, *operands, name):
        return self.b.node(op, *operands, outputs=[f"{name}: {ROW}"], source=FORWARD)[0]

    def backward(self, op, *operands, name):
        return self.b.node(op, *operands, outputs=[f"{name}: {ROW}"], source=BACKWARD)[0]

    def over(self, op):
        return self.b.node(op, self.y, outputs=[f"r: {ROW} @y"], source=FORWARD)[0]


def effect(activation):
    graph = Block(activation).b.finish()
    return graph, norm_from_output_effect(graph, Schedule.program_order(graph), registry())


def test_leaky_relu_in_place_frees_the_input_of_the_norm():
    graph, found = effect(lambda block: block.over("aten.leaky_relu_.default"))
    (pair,) = found.pairs
    assert found.recoverable == (pair,)
    assert (graph.values[pair.operand].name, graph.values[pair.kept].name, pair.nbytes) == ("h", "r", 1024)
    assert found.peak_bytes - found.recovered_peak_bytes == 1024
    assert "weight of zero" in found.why_not_bitwise


def test_norm_whose_output_goes_straight_to_a_layer():
    _, found = effect(lambda block: block.y)
    assert [pair.refusal for pair in found.pairs] == [None]
    assert found.recovered_peak_bytes < found.peak_bytes


@pytest.mark.parametrize(
    ("activation", "reason"),
    [
        (lambda block: block.over("aten.relu_.default"), NotRecoverable.OVERWRITTEN),
        (lambda block: block.forward("aten.relu.default", block.y, name="r"), NotRecoverable.OUTPUT_GONE),
    ],
)
def test_clamped_output_tells_nothing(activation, reason):
    _, found = effect(activation)
    assert [pair.refusal for pair in found.pairs] == [reason]
    assert found.recovered_peak_bytes == found.peak_bytes


def test_input_that_the_caller_owns_stays():
    b = GraphBuilder("norm", registry())
    x, c = b.input("x", (1, 4, 64)), b.input("c", (64,))
    outputs = [f"y: {ROW}", *STATISTICS]
    y, mean, rstd = b.node(
        "aten.native_layer_norm.default", x, [64], c, c, 1e-5, outputs=outputs, source=FORWARD
    )
    grads = [f"g: {ROW}", "g_c: f32[64]", "g_b: f32[64]"]
    mask = [True, True, True]
    args = (y, x, [64], mean, rstd, c, c, mask)
    b.node("aten.native_layer_norm_backward.default", *args, outputs=grads, source=BACKWARD)
    graph = b.finish()
    found = norm_from_output_effect(graph, Schedule.program_order(graph), registry())
    assert [pair.refusal for pair in found.pairs] == [NotRecoverable.INPUT_STAYS]


def test_repeated_norm_is_left_alone():
    graph = Block(lambda block: block.y).b.finish()
    order = [0, 1, 1, *range(2, len(graph.nodes))]
    found = norm_from_output_effect(graph, Schedule.from_nodes(graph, order), registry())
    assert [pair.refusal for pair in found.pairs] == [NotRecoverable.REPEATED]
