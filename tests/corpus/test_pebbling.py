"""Pebbling: the brute-force pebbler and the search over orders agree; files that are wrong are refused."""

import pytest

from neaptide.errors import UsageError
from neaptide_corpus.pebbling import from_mapping, order_form, pebbling_number, random_game
from order_play import least_peak

DIAMOND = {
    "format": "neaptide.pebbling/1",
    "vertices": [
        {"id": "d", "weight": 1, "predecessors": ["b", "c"]},
        {"id": "a", "weight": 5},
        {"id": "b", "weight": 2, "predecessors": ["a"]},
        {"id": "c", "weight": 3, "predecessors": ["a"]},
    ],
}


def test_a_diamond_by_hand():
    game = from_mapping(DIAMOND)
    assert game.ids[0] == "a"
    assert [game.ids[v] for v in game.kept] == ["d"]
    assert pebbling_number(game) == 10  # a with b and c
    assert least_peak(order_form(game)) == 10


@pytest.mark.parametrize("seed", range(40))
def test_orders_are_as_good_as_games(seed):
    game = random_game(seed, 3 + seed % 5)
    assert least_peak(order_form(game)) == pebbling_number(game)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other/1"}, "format"),
        ({"vertices": [{"id": "a"}]}, "form"),
        ({"vertices": [{"id": "a", "weight": 1}, {"id": "a", "weight": 2}]}, "own"),
        ({"vertices": [{"id": "a", "weight": -1}]}, "negative"),
        ({"vertices": [{"id": "a", "weight": 1, "predecessors": ["x"]}]}, "does not have: x"),
        ({"vertices": [{"id": "a", "weight": 1, "predecessors": ["a"]}]}, "cycle"),
        ({"kept": ["x"]}, "does not have: x"),
    ],
)
def test_wrong_games_are_refused(change, message):
    with pytest.raises(UsageError, match=message):
        from_mapping({**DIAMOND, **change})


def test_the_pebbler_refuses_large_games():
    with pytest.raises(UsageError, match="7"):
        pebbling_number(random_game(0, 8))
