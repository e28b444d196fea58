"""Gadgets made from 3-PARTITION: the best peak is the threshold iff the numbers fall into equal triples."""

from itertools import combinations

import pytest

from neaptide.errors import UsageError
from neaptide.schedule.order.neutral import from_mapping
from neaptide_corpus.three_partition import hard_out_tree, hard_pumpkin, three_partition_numbers
from order_play import least_peak

SOLVABLE = [[12, 12, 12, 12, 16, 16], [13, 13, 13, 13, 14, 14]]
UNSOLVABLE = [[11, 11, 11, 15, 15, 17], [11, 13, 13, 13, 15, 15]]


@pytest.mark.parametrize("numbers", SOLVABLE + UNSOLVABLE)
@pytest.mark.parametrize("gadget", [hard_out_tree, hard_pumpkin])
def test_the_best_peak_answers_the_question(numbers, gadget):
    solvable = any(2 * sum(triple) == sum(numbers) for triple in combinations(numbers, 3))
    hard = gadget(numbers)
    assert (least_peak(hard.form) <= hard.threshold_bytes) == solvable == (numbers in SOLVABLE)


@pytest.mark.parametrize("seed", range(5))
def test_made_up_numbers_fall_into_triples(seed):
    numbers = three_partition_numbers(3, seed)
    assert len(numbers) == 9
    assert sum(numbers) == 120
    assert all(10 < number < 20 for number in numbers)
    assert any(
        sum(first) == 40 and any(sum(numbers[i] for i in second) == 40 for second in combinations(rest, 3))
        for places in combinations(range(9), 3)
        for first in [[numbers[i] for i in places]]
        for rest in [[i for i in range(9) if i not in places]]
    )
    from_mapping(hard_pumpkin(numbers).form)


@pytest.mark.parametrize("numbers", [[], [1, 2], [10, 10, 30], [11, 11, 11, 15, 15, 18]])
def test_other_numbers_are_refused(numbers):
    with pytest.raises(UsageError, match="3-PARTITION"):
        hard_out_tree(numbers)
