"""What is said of the batch axis of real training steps, against their kernels: each distinct member in parts and whole."""

from pathlib import Path

import pytest

from neaptide import zoo
from run_elsewhere import told_by

# Batch norm in training needs the batch whole. Dim 0 of the tokens of a recurrent model is time.
WHOLE = {
    "aten.native_batch_norm.default: whole",
    "aten.native_batch_norm_backward.default: whole",
    "aten.mkldnn_rnn_layer.default: whole",
    "aten.mkldnn_rnn_layer_backward.default: whole",
}


def checked(*specs):
    """In a process of its own: a kernel that is handed wrong lengths may end it."""
    return told_by(Path(__file__).parent / "axis_run.py", *specs)


def check(*specs):
    for spec, found in checked(*specs).items():
        assert not found["wrong"], (spec, found["wrong"])
        assert found["compared"] > 10
        assert set(found["barriers"]) <= WHOLE
        classified = found["members"] + found["untouched"] + sum(found["barriers"].values())
        assert classified == found["nodes"]


@pytest.mark.slow
def test_the_batch_of_a_model():
    check("gpt2@tiny,batch=5,layers=1")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_batch_of_every_model():
    check(*(f"{name}@tiny,batch=5" for name in zoo.names()))


@pytest.mark.slow
def test_dropout_is_drawn_whole_and_all_else_runs_in_parts():
    check("gpt2@tiny,batch=5,dropout=0.1", "unet2d@tiny,batch=5,dropout=0.1")
