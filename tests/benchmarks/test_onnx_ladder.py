"""The lecture's ladder on small depths."""

from __future__ import annotations

from collections import Counter

import pytest

import onnx_ladder
from onnx_ladder import FAMILIES, Training, checkpointed, climb, counters, exponent, lecture

DEPTHS = (16, 64)


def test_the_first_graph_of_the_lecture_has_three_temporaries_or_one() -> None:
    training = lecture()
    rungs = {
        rung.name: rung for rung in onnx_ladder.ways(training, [node.id for node in training.graph.nodes])
    }
    assert [rungs[name].allocator_calls for name in ("no reuse", "in place", "static plan")] == [3, 1, 1]
    assert [rungs[name].nbytes for name in ("no reuse", "in place", "static plan")] == [768, 256, 256]
    lines = list(counters(training))
    assert [line.split(": ")[2].split("; ")[0] for line in lines] == [
        "product takes the new tag 0",
        "sum takes tag 0 from product",
        "result takes tag 0 from sum",
        "result puts tag 0 into the box",
    ]


@pytest.mark.parametrize("family", ["mlp", "resnet"])
def test_bytes_grow_with_the_depth_and_with_its_root(family: str) -> None:
    rungs = [{rung.name: rung for rung in climb(Training.of(FAMILIES[family](depth)))} for depth in DEPTHS]

    def slope(name: str) -> float:
        return exponent(DEPTHS, [row[name].nbytes for row in rungs])

    assert slope("liveness counters") == pytest.approx(1, abs=0.05)
    assert slope("static plan") == pytest.approx(1, abs=0.05)
    assert slope("sqrt(n), static plan") == pytest.approx(0.5, abs=0.06)
    deep = rungs[-1]
    assert deep["static plan"].nbytes < deep["in place"].nbytes < deep["no reuse"].nbytes
    assert deep["static plan"].nbytes < deep["backprop on the forward graph"].nbytes
    assert 1.2 < deep["sqrt(n), static plan"].work < 1.4


def test_checkpointing_runs_each_forward_node_at_most_once_more() -> None:
    training = Training.of(FAMILIES["mlp"](16))
    runs = Counter(checkpointed(training, 4))
    assert set(runs) == {node.id for node in training.graph.nodes}
    assert {node for node, times in runs.items() if times > 1} <= set(training.forward)
    assert set(runs.values()) == {1, 2}
