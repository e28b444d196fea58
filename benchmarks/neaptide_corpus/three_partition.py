"""Hard out-trees and pumpkins made from 3-PARTITION: their best peak tells whether the numbers fall into equal triples.

Jin et al. (arXiv 2312.13526) state that ordering shared-tensor out-trees and pumpkins is strongly NP-complete; the
construction here is our own. 3m numbers with sum mB, each between B/4 and B/2, are to fall into m triples of sum B.

*Gadget.* A source tensor of w bytes is read by one chain per number a. The chain has m stops, reached one after another;
at stop k = 1 .. m it holds a (1 + m - k) bytes, and the operation that takes it there needs that and G_k bytes of
workspace in all. G_k grows with k. The source is freed once every chain has left; until then an operation towards stop
k fits only while what all chains hold is at most D_k = P - w - G_k, and D_1, which the last chain to leave must meet,
needs chains to have gone down far before. With D_k = B (1 + 2 + ... + (m - k + 1)), the sum at stops k .. m of
equally filled stops, a peak of P is reached iff the numbers that stop at k when the source dies have the sum B, for
every k:

Let R_k be the sum of the numbers at stops k .. m less (m - k + 1) B, so R_1 = 0. The condition of stop k reads
(1 + m - k) R_k <= R_{k+1} + ... + R_m; from k = m down this gives R_k <= 0, and that of k = 1 gives
R_2 + ... + R_m >= 0, so all are 0. Conversely equal triples may leave in the order of their stops, farthest first.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.errors import UsageError
from neaptide_corpus.order_forms import FormBuilder, OrderForm


@dataclass(frozen=True, slots=True)
class HardOrder:
    """An ordering problem made from 3-PARTITION.

    Attributes:
        form: the neutral form.
        threshold_bytes: the best peak is at most this iff the numbers fall into triples of equal sum.
    """

    form: OrderForm
    threshold_bytes: int


def hard_out_tree(numbers: Sequence[int]) -> HardOrder:
    """A root with one chain per number; what the leaves make is kept. Raises UsageError for other numbers."""
    return _gadget(numbers, sink=False)


def hard_pumpkin(numbers: Sequence[int]) -> HardOrder:
    """A source, one chain per number, a sink. Raises UsageError for other numbers."""
    return _gadget(numbers, sink=True)


def three_partition_numbers(triples: int, seed: int, *, total: int = 40) -> list[int]:
    """Numbers that do fall into triples of sum `total`, shuffled; `total` is at least 12."""
    rng = random.Random(seed)
    least, most = total // 4 + 1, (total - 1) // 2
    numbers: list[int] = []
    while len(numbers) < 3 * triples:
        pair = [rng.randint(least, most) for _ in range(2)]
        if least <= total - sum(pair) <= most:
            numbers += [*pair, total - sum(pair)]
    rng.shuffle(numbers)
    return numbers


def _gadget(numbers: Sequence[int], *, sink: bool) -> HardOrder:
    stops = len(numbers) // 3
    total = sum(numbers) // stops if stops else 0
    fits = stops and len(numbers) == 3 * stops and sum(numbers) == stops * total
    if not fits or any(not total < 4 * number < 2 * total for number in numbers):
        raise UsageError(
            "these numbers are no 3-PARTITION problem",
            why="there must be 3m of them with the sum m B, each above B/4 and below B/2",
        )
    limit = [total * (left * (left + 1) // 2) for left in range(stops, 0, -1)]  # D_1 .. D_m
    base = stops * max(numbers)  # so that no workspace is negative
    workspace = [base + limit[0] - room for room in limit]  # G_1 .. G_m
    source_bytes = limit[0] - limit[-1] + 1  # enough for any stop once the source is gone
    form = FormBuilder()
    source = form.op("source", sizes=[source_bytes])[0]
    ends: list[str] = []
    for number in numbers:
        holds, at = 0, source
        for stop in range(stops):
            scratch = workspace[stop] - holds
            holds = number * (stops - stop)
            at = form.op("stop", reads=[at], sizes=[holds], workspace=scratch)[0]
        ends.append(at)
    if sink:
        ends = form.op("sink", reads=ends, sizes=[1])
    form.keep(*ends)
    kind = "pumpkin" if sink else "out-tree"
    return HardOrder(form.finish(f"hard {kind} m={stops}"), source_bytes + base + limit[0])
