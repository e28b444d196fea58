import torch

from neaptide.ops import registry

ATEN = torch.ops.aten
X = torch.ones(3, 5)
BYTES = 60


def _traffic(call_of, op, *args, **kwargs):
    return registry().require(str(op)).bytes_moved(call_of(op, *args, **kwargs)).evaluate()


def test_out_of_place_reads_operands_and_writes_the_result(call_of):
    assert _traffic(call_of, ATEN.add.Tensor, X, X.clone()) == 3 * BYTES


def test_in_place_reads_and_writes_its_operand(call_of):
    assert _traffic(call_of, ATEN.add_.Tensor, X.clone(), X.clone()) == 3 * BYTES


def test_out_variant_does_not_read_what_it_overwrites(call_of):
    assert _traffic(call_of, ATEN.add.out, X, X.clone(), out=torch.empty(3, 5)) == 3 * BYTES


def test_lists_without_result_are_read_and_written(call_of):
    assert _traffic(call_of, ATEN._foreach_mul_.Scalar, [X.clone(), X.clone()], 2.0) == 4 * BYTES


def test_copy_and_fill_forget_the_old_contents(call_of):
    assert _traffic(call_of, ATEN.copy_.default, X.clone(), X.clone()) == 2 * BYTES
    assert _traffic(call_of, ATEN.zero_.default, X.clone()) == BYTES
    assert _traffic(call_of, ATEN.zeros_like.default, X) == BYTES


def test_embedding_touches_the_rows_it_picks(call_of):
    table, index = torch.ones(1000, 4), torch.tensor([1, 2, 3])
    assert _traffic(call_of, ATEN.embedding.default, table, index) == 2 * 3 * 4 * 4 + 3 * 8


def test_index_put_in_place_touches_what_it_hits(call_of):
    table, index, rows = torch.ones(1000, 4), torch.tensor([1, 2, 3]), torch.ones(3, 4)
    assert _traffic(call_of, ATEN.index_put_.default, table, [index], rows) == 3 * 8 + 3 * rows.nbytes
