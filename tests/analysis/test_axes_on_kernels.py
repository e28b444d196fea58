"""What is said of the batch axis of real training steps, against their kernels: each distinct member in parts and whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from neaptide import zoo

# Batch norm in training needs the batch whole; the recurrent layers hand a workspace of their own from forward to
# backward, whose parts nobody knows.
WHOLE = {
    "aten.native_batch_norm.default: whole",
    "aten.native_batch_norm_backward.default: whole",
    "aten.mkldnn_rnn_layer.default: whole",
    "aten.mkldnn_rnn_layer_backward.default: whole",
}


def checked(*names):
    """In a process of its own: a kernel that is handed wrong lengths may end it."""
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "axis_run.py", *(f"{name}@tiny,batch=5" for name in names)],
        cwd=here,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(here.parent)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(names):
    for spec, found in checked(*names).items():
        assert not found["wrong"], (spec, found["wrong"])
        assert found["compared"] > 10
        assert set(found["barriers"]) <= WHOLE
        classified = found["members"] + found["untouched"] + sum(found["barriers"].values())
        assert classified == found["nodes"]


def test_the_batch_of_two_models():
    check(["gpt2", "unet"])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_batch_of_every_model():
    check(zoo.names())
