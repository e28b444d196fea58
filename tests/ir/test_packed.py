from neaptide.ir.builder import GraphBuilder
from neaptide.ir.text.parser import parse_graph
from neaptide.ir.text.writer import print_graph
from neaptide.ir.values import DTYPE_BYTES, DTYPE_WORDS, PACKED, packed_bytes
from neaptide.symbolic.size_expr import SizeExpr
from support.together import together


def test_every_dtype_has_a_word():
    assert DTYPE_WORDS.keys() == DTYPE_BYTES.keys() >= PACKED.keys()
    assert len(set(DTYPE_WORDS.values())) == len(DTYPE_WORDS)


@together(("count", "nbytes"), [(0, 0), (1, 1), (2, 1), (5, 3)])
def test_packed_elements_fill_whole_bytes(count, nbytes):
    assert packed_bytes(SizeExpr.const(count), "int4").constant_value() == nbytes
    assert packed_bytes(SizeExpr.const(count), "int16").constant_value() == 2 * count


def test_a_graph_of_packed_values_is_sound_and_printed():
    b = GraphBuilder("packed")
    x = b.input("x", (5,), "uint4")
    (y,) = b.node("toy.copy", x, outputs=["y: u4[5]"])
    b.output(y)
    graph = b.finish()
    assert [storage.nbytes.constant_value() for storage in graph.storages] == [3, 3]
    assert parse_graph(print_graph(graph)) == graph
