import torch

from neaptide.ops import registry
from support.together import together

ATEN = torch.ops.aten
BYTES = 60
TABLE, INDEX, PICKED = torch.ones(1000, 4), torch.tensor([1, 2, 3]), torch.ones(3, 4)


def x():
    return torch.ones(3, 5)


@together(
    ("op", "args", "out", "expected"),
    [
        (ATEN.add.Tensor, (x(), x()), None, 3 * BYTES),
        (ATEN.add_.Tensor, (x(), x()), None, 3 * BYTES),
        (ATEN.add.out, (x(), x()), x(), 3 * BYTES),  # what is overwritten is not read
        (ATEN._foreach_mul_.Scalar, ([x(), x()], 2.0), None, 4 * BYTES),
        (ATEN.copy_.default, (x(), x()), None, 2 * BYTES),  # the old contents are forgotten
        (ATEN.zero_.default, (x(),), None, BYTES),
        (ATEN.zeros_like.default, (x(),), None, BYTES),
        (ATEN.embedding.default, (TABLE, INDEX), None, 2 * PICKED.nbytes + 3 * 8),  # the rows that are picked
        (ATEN.index_put_.default, (TABLE, [INDEX], PICKED), None, 3 * 8 + 3 * PICKED.nbytes),
    ],
    ids=lambda item: str(item)[:40],
)
def test_bytes_that_a_call_reads_and_writes(op, args, out, expected, call_of):
    call = call_of(op, *args) if out is None else call_of(op, *args, out=out)
    assert registry().require(str(op)).bytes_moved(call).evaluate() == expected
