"""Calls are the same exactly where their cost is."""

from neaptide.cost.op_key import index_limits, op_call
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import Ref
from neaptide.ops import registry


def texts(b: GraphBuilder) -> list[str]:
    graph = b.finish()
    return [repr(op_call(graph, node)) for node in graph.nodes]


def test_names_and_places_do_not_matter():
    b = GraphBuilder("g", registry())
    x, y = b.input("x", (4, 8)), b.input("y", (4, 8))
    (p,) = b.node("aten.add.Tensor", x, y, outputs=["p: f32[4, 8]"])
    (q,) = b.node("aten.add.Tensor", p, x, outputs=["q: f32[4, 8]"])
    b.output(q)
    first, second = texts(b)
    assert first == second


def test_shapes_strides_dtypes_and_constants_matter():
    b = GraphBuilder("g", registry())
    x, y = b.input("x", (8, 8)), b.input("y", (4, 8))
    h = b.input("h", (8, 8), dtype="bfloat16")
    (t,) = b.node("aten.t.default", x, outputs=["t: f32[8, 8] strides(1, 8) @x"])
    for operand, result in ((x, "f32[8, 8]"), (y, "f32[4, 8]"), (h, "bf16[8, 8]"), (t, "f32[8, 8]")):
        b.output(*b.node("aten.mul.Tensor", operand, 2.0, outputs=[f"r: {result}"]))
    b.output(*b.node("aten.mul.Tensor", x, 3.0, outputs=["r: f32[8, 8]"]))
    found = texts(b)
    assert len(set(found)) == len(found)


def test_operands_on_one_storage_are_told_from_operands_that_are_not():
    b = GraphBuilder("g", registry())
    x, y = b.input("x", (4, 8)), b.input("y", (2, 8))
    (top,) = b.node("aten.slice.Tensor", x, 0, 0, 2, outputs=["top: f32[2, 8] @x"])
    (low,) = b.node("aten.slice.Tensor", x, 0, 2, 4, outputs=["low: f32[2, 8] offset(16) @x"])
    for left, right in ((top, low), (top, y), (low, y), (top, top)):
        b.output(*b.node("aten.add.Tensor", left, right, outputs=["r: f32[2, 8]"]))
    shared, apart, apart_lower, same = texts(b)[2:]
    assert apart == apart_lower  # where a lone operand begins in its storage is all one
    assert len({shared, apart, same}) == 3


def test_operand_bytes_count_a_storage_once():
    b = GraphBuilder("g", registry())
    x = b.input("x", (4, 8))
    (top,) = b.node("aten.slice.Tensor", x, 0, 0, 2, outputs=["top: f32[2, 8] @x"])
    (low,) = b.node("aten.slice.Tensor", x, 0, 2, 4, outputs=["low: f32[2, 8] offset(16) @x"])
    (r,) = b.node("aten.add.Tensor", top, low, outputs=["r: f32[2, 8]"])
    b.output(r)
    graph = b.finish()
    call = op_call(graph, graph.nodes[2])
    assert (call.operand_bytes, call.output_bytes) == (4 * 8 * 4, 2 * 8 * 4)
    assert op_call(graph, graph.nodes[0]).is_view
    assert op_call(graph, graph.nodes[0]).output_bytes == 0


def test_indices_stay_in_their_table():
    b = GraphBuilder("g", registry())
    table, ids = b.input("table", (50, 8)), b.input("ids", (3, 4), dtype="int64")
    (rows,) = b.node("aten.embedding.default", table, ids, outputs=["rows: f32[3, 4, 8]"])
    args = (rows, ids, 50, -1, False)
    (grad,) = b.node("aten.embedding_dense_backward.default", *args, outputs=["grad: f32[50, 8]"])
    at = b.input("at", (50, 2), dtype="int64")
    (picked,) = b.node("aten.gather.default", grad, 1, at, outputs=["picked: f32[50, 2]"])
    (total,) = b.node("aten.add.Tensor", ids, ids, outputs=["total: i64[3, 4]"])
    b.output(picked, total)
    graph = b.finish()
    assert [index_limits(op_call(graph, node)) for node in graph.nodes] == [{1: 50}, {1: 50}, {1: 8}, {}]


def test_seeds_of_attention_are_made_by_it():
    """On CUDA they lie on the host, and their fakes do not say so."""
    b = GraphBuilder("g", registry())
    q = b.input("q", (1, 2, 4, 8))
    out, lse, seed, offset = b.node(
        "aten._scaled_dot_product_efficient_attention.default", q, q, q, None, True, 0.1,
        outputs=["out: f32[1, 2, 4, 8]", "lse: f32[1, 2, 32]", "seed: i64[]", "offset: i64[]"],
    )  # fmt: skip
    args = (out, q, q, q, None, out, lse, seed, offset, 0.1, (True, True, True, False))
    gradients = ["gq: f32[1, 2, 4, 8]", "gk: f32[1, 2, 4, 8]", "gv: f32[1, 2, 4, 8]"]
    b.node(
        "aten._scaled_dot_product_efficient_attention_backward.default", *args, outputs=gradients,
        results=(Ref(0), Ref(1), Ref(2), None),
    )  # fmt: skip
    graph = b.finish()
    made = op_call(graph, graph.nodes[1])
    by = [operand.made_at for operand in made.operands if operand.made_by]
    assert by == [2, 3]
    assert [producer.op for _, producer in made.producers] == [graph.nodes[0].op]


def test_opaque_operand_is_made_by_its_producer():
    b = GraphBuilder("g", registry())
    (state,) = b.node("neaptide.get_rng_state.default", outputs=["state: u8[5056]"])
    plain = b.input("plain", (5056,), dtype="uint8")
    for given in (state, plain):
        b.node("neaptide.set_rng_state.default", given)
    graph = b.finish()
    maker, of_made, of_plain = (op_call(graph, node) for node in graph.nodes)
    assert of_made != of_plain
    ((name, producer),) = of_made.producers
    assert producer == maker
    assert (of_made.operands[0].made_by, of_made.operands[0].made_at) == (name, 0)
