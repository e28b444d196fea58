from __future__ import annotations

from math import exp, log

import msgspec
import pytest

from neaptide.named_peers import peer
from neaptide.planner.passes.features import NAMES
from neaptide.planner.passes.named_order import NamedOrder
from neaptide.planner.passes.prior import Prior, PriorFile
from onnx_orchestrator import found_bytes, walked
from pass_records import Record, RecordedSpace, Seen
from train_passes import fitted


def facts(first):
    return (first, *(0.0,) * (len(NAMES) - 1))


def record(seed):
    """`p` saves the more the larger its first feature; after it `q` halves what is left, and before it does nothing."""
    first = seed / 20
    after = round(1e6 * exp(-first))
    states = (
        Seen(1_000_000, 0, {"p": facts(first), "q": facts(0.0)}, {"p": 1, "q": -1}, (1, 1, 3)),
        Seen(after, 1, {"q": facts(1.0)}, {"q": 2}, (1, 1, 4)),
        Seen(after // 2, 2, {}, {}, (1, 1, 5)),
    )
    return Record("toy", seed, ("p", "q"), states, 0.0, complete=True)


RECORDS = [record(seed) for seed in range(40)]


def test_direct_and_reachable_gains_are_learned_from_features():
    prior = Prior(fitted(RECORDS, penalty=0.1))
    for first in (0.2, 1.0, 1.8):
        predicted = prior.predict("p", {"p": facts(first), "q": facts(0.0)})
        assert predicted.direct == pytest.approx(-first, abs=0.05)
        assert predicted.reach == pytest.approx(log(0.5), abs=0.02)
    alone = prior.predict("q", {"p": facts(1.0), "q": facts(0.0)})
    assert alone.direct == pytest.approx(0.0, abs=0.02)
    assert prior.predict("q", {"q": facts(1.0)}).direct == pytest.approx(log(0.5), abs=0.02)


def test_a_fit_is_the_same_again_and_survives_its_file():
    text = msgspec.json.encode(fitted(RECORDS))
    assert text == msgspec.json.encode(fitted(RECORDS))
    assert msgspec.json.decode(text, type=PriorFile) == fitted(RECORDS)


def test_a_few_rows_teach_averages_alone():
    row = fitted(RECORDS[:3]).rows["p"]
    assert set(row.direct.weights) == {0.0}
    assert row.direct.mean == pytest.approx(-0.05, abs=0.001)


def test_searches_over_a_record_find_what_is_in_it():
    one = RECORDS[20]
    assert found_bytes(one, peer("passes", "exhaustive").strategy(0), None) == (one.best_bytes, 3)
    assert found_bytes(one, NamedOrder(("q", "p", "q")), None)[0] == walked(one, ("q", "p", "q"))
    assert walked(one, ("q", "p")) == one.states[1].nbytes
    assert RecordedSpace(one).measure(2).facts == {}
    assert one.lowest[0] == (1_000_000, one.states[1].nbytes, one.best_bytes, one.best_bytes)
