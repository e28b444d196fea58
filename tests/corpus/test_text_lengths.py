"""Lengths of texts: in their range, skewed, and the same each time."""

from __future__ import annotations

from statistics import mean, median

from neaptide_corpus.text_lengths import LONGEST, SHORTEST, batches_of_tokens, text_lengths


def test_lengths_are_in_their_range_and_most_are_short():
    found = text_lengths(2000, 1)
    assert len(found) == 2000
    assert SHORTEST <= min(found) < 130
    assert 2500 < max(found) <= LONGEST
    assert median(found) < mean(found)


def test_the_same_seed_gives_the_same_batches_and_another_one_others():
    assert batches_of_tokens(5, 3, 7) == batches_of_tokens(5, 3, 7)
    assert batches_of_tokens(5, 3, 7) != batches_of_tokens(5, 3, 8)
    found = batches_of_tokens(50, 4, 0, scale=4)
    assert {len(batch) for batch in found} == {4}
    assert max(map(max, found)) <= LONGEST // 16
