"""Members of the batch axis of all zoo models against DTensor's sharding rules: where results lie."""

from pathlib import Path

import pytest

from neaptide import zoo
from run_elsewhere import told_by

# DTensor has no rule for them, or it fails on the call.
WITHOUT_RULE = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
    "aten.avg_pool2d_backward.default",
    "aten.index.Tensor",  # an assertion of its own, on an index that is sharded beside one that is not
}
# Where DTensor says otherwise, and why.
OTHERWISE = {
    "aten.nll_loss_forward.default",  # a mean is an average of parts, which is wrong for parts of different weight
    "aten.nll_loss2d_forward.default",
    "aten.mse_loss.default",
    "aten.mean.default",
    "aten.expand.default",  # a size among its arguments is not one of a part, so that it is repeated whole
}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_placements_of_results_are_those_of_dtensor():
    specs = [f"{name}@tiny,batch=4" for name in zoo.names()]
    calls = agreed = 0
    for spec, found in told_by(Path(__file__).parent / "axis_dtensor.py", *specs).items():
        counts = found["counts"]
        calls += counts["calls"]
        agreed += counts.get("agree", 0) + counts.get("moved", 0)
        for what in found["differences"]:
            op, _, kind = what.partition(": ")
            allowed = OTHERWISE if kind.startswith("[") else WITHOUT_RULE
            assert kind == "moved" or op in allowed, (spec, what)
    assert agreed > 0.95 * calls > 500
