"""Workspace and true storage sizes, against kernels whose secrets are known."""

import pytest

# ruff: noqa: E402  (what follows needs torch, which is an extra)
torch = pytest.importorskip("torch")

from cost.node_costs import node_workspace
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.cost.cache import OpCostCache
from neaptide.cost.cards.allocator_events import record
from neaptide.cost.measured import MeasuredCost, surprises
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.errors import CaptureError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.ops import registry

FALLBACK = EstimatedCost(get_device("a100-40g"), registry())


@pytest.fixture
def cost(tmp_path):
    return MeasuredCost(registry(), OpCostCache(tmp_path / "costs"), fallback=FALLBACK)


def upsampled_loss() -> Graph:
    """Resizing needs workspace; the mean loss keeps its unreduced bytes, which this graph does not know."""
    b = GraphBuilder("loss", registry())
    x, target = b.input("x", (1, 3, 8, 8)), b.input("target", (1, 3, 16, 16))
    (h,) = b.node("aten.upsample_nearest2d.default", x, [16, 16], outputs=["h: f32[1, 3, 16, 16]"])
    (loss,) = b.node("aten.mse_loss.default", h, target, outputs=["loss: f32[]"])
    b.output(loss)
    return b.finish()


def test_prediction_meets_the_allocator(cost):
    graph = upsampled_loss()
    cost.prepare(graph)
    sizes = cost.storage_bytes(graph)
    unreduced = 4 * 3 * 16 * 16
    assert list(sizes.values()) == [unreduced]
    assert surprises(graph, cost) == (
        "result 0 of aten.mse_loss.default lies in a storage of 3.0 KiB; the graph says 4 bytes",
    )
    profile = memory_profile(
        graph, Schedule.program_order(graph), workspace=node_workspace(cost, graph), storage_bytes=sizes
    )
    x, target = torch.rand(1, 3, 8, 8), torch.rand(1, 3, 16, 16)
    kept = []

    def program():
        h = torch.ops.aten.upsample_nearest2d.default(x, [16, 16])
        kept.append(torch.ops.aten.mse_loss.default(h, target))

    program()
    seen = record(program).peak_bytes(profile.persistent_bytes)
    assert profile.peak_with_workspace_bytes == seen


def test_recurrent_layer_has_a_workspace_that_shapes_do_not_tell(cost):
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch was built without oneDNN")
    b = GraphBuilder("rnn", registry())
    x = b.input("x", (5, 2, 16))
    weights = [
        b.input(name, shape)
        for name, shape in (("wi", (64, 16)), ("wh", (64, 16)), ("bi", (64,)), ("bh", (64,)))
    ]
    h, c = b.input("h", (2, 16)), b.input("c", (2, 16))
    options = (False, [], 2, 16, 1, True, False, False, True)
    forward = b.node(
        "aten.mkldnn_rnn_layer.default", x, *weights, h, c, *options,
        outputs=["y: f32[5, 2, 16]", "hy: f32[2, 16]", "cy: f32[2, 16]", "ws: u8[0]"],
    )  # fmt: skip
    y, hy, cy, workspace = forward
    backward = b.node(
        "aten.mkldnn_rnn_layer_backward.default", x, *weights, h, c, y, hy, cy, y, None, None,
        False, 2, 16, 1, True, True, False, [], False, workspace,
        outputs=["gx: f32[5, 2, 16]", "gwi: f32[64, 16]", "gwh: f32[64, 16]", "gbi: f32[64]", "gbh: f32[64]",
                 "gh: f32[2, 16]", "gc: f32[2, 16]"],
    )  # fmt: skip
    b.output(*backward)
    graph = b.finish()
    cost.prepare(graph)
    assert cost.skipped(graph) == ()
    assert cost.storage_bytes(graph)[graph.values[workspace].storage] > 0
    assert any(
        "result 3 of aten.mkldnn_rnn_layer.default is uint8" in text for text in surprises(graph, cost)
    )


def test_alias_that_the_graph_has_otherwise_is_a_surprise(cost):
    b = GraphBuilder("alias", registry())
    x = b.input("x", (4, 4))
    (y,) = b.node("aten.reshape.default", x, [16], outputs=["y: f32[16]"], reads=[x])
    b.output(y)
    graph = b.finish()
    cost.prepare(graph)
    (surprise,) = surprises(graph, cost)
    assert "operand's storage" in surprise


def test_what_was_not_run_is_a_surprise_and_an_estimate_has_none(cost):
    graph = upsampled_loss()
    assert [text.split()[0] for text in surprises(graph, cost)] == [
        "aten.mse_loss.default",
        "aten.upsample_nearest2d.default",
    ]
    assert (node_workspace(FALLBACK, graph), FALLBACK.storage_bytes(graph), surprises(graph, FALLBACK)) == (
        {},
        {},
        (),
    )


def test_scratch_that_depends_on_the_numbers_is_counted_at_its_most_and_said(cost):
    b = GraphBuilder("exponential", registry())
    x = b.input("x", (3, 3))
    (y,) = b.node("aten.linalg_matrix_exp.default", x, outputs=["y: f32[3, 3]"])
    b.output(y)
    graph = b.finish()
    cost.prepare(graph)
    for scale in (0.0, 1e-4, 1.0, 100.0):
        matrix = torch.full((3, 3), scale)
        torch.linalg.matrix_exp(matrix)  # fills caches that stay
        seen = record(lambda matrix=matrix: torch.linalg.matrix_exp(matrix)).peak_bytes()
        assert cost.workspace_bytes(graph, graph.nodes[0]) >= seen - matrix.nbytes
    (surprise,) = surprises(graph, cost)
    assert "depends on the numbers" in surprise


def test_a_dtype_that_the_graph_has_otherwise_is_an_error(cost):
    b = GraphBuilder("precision", registry())
    x, weight = b.input("x", (3, 4, 5), "bfloat16"), b.input("w", (4,))
    results = b.node(
        "aten.native_group_norm.default", x, weight, weight, 3, 4, 5, 2, 1e-5,
        outputs=["y: bf16[3, 4, 5]", "mean: bf16[3, 2]", "rstd: bf16[3, 2]"],
    )  # fmt: skip
    b.output(*results)
    graph = b.finish()
    cost.prepare(graph)
    with pytest.raises(CaptureError, match="says bfloat16") as refused:
        surprises(graph, cost)
    assert refused.value.next_step
