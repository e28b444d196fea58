"""What a capture believes of the results of every row that can be called, against the kernels that run."""

from pathlib import Path

import pytest

from support.run_elsewhere import told_by

# Operations whose results are not believed as they are, and why that does no harm.
NEVER_RECORDED = "autograd runs it as other operations"
DIFFERENT = {
    "divide.Tensor_mode": NEVER_RECORDED,
    "float_power.Scalar": NEVER_RECORDED,
    "log_sigmoid.default": NEVER_RECORDED,
    "mkldnn_rnn_layer.default": "its workspace has as many bytes as oneDNN says; the row takes them from an audit",
}
LEAST_CALLS, LEAST_ROWS = 4000, 400
KINDS = 12  # six pairs of dtypes, two layouts


@pytest.mark.slow
def test_every_row_gives_what_a_capture_believes():
    found = told_by(Path(__file__).parent / "result_check.py")
    assert {name: told for name, told in found["different"].items() if name not in DIFFERENT} == {}
    assert len(found["kinds"]) == KINDS
    assert found["calls"] >= LEAST_CALLS
    assert found["rows"] >= LEAST_ROWS
