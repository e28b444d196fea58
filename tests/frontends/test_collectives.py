"""Reductions over processes are operations of the program; what cannot be is refused by its name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import neaptide

SCRIPT = Path(__file__).with_name("collective_steps.py")


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_gradients_are_reduced_in_place_with_the_bits_of_eager(tmp_path):
    roots = os.pathsep.join((str(Path(neaptide.__file__).parents[1]), str(SCRIPT.parents[1])))
    environment = {**os.environ, "PYTHONPATH": roots, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert lines[:2] == ["equal: True"] * 2
    assert "talks to other processes by c10d.allreduce_" in lines[2]
    assert "without async_op" in lines[2]
    assert "weight is a DTensor" in lines[3]
    assert "to_local()" in lines[3]
    assert lines[4] == "untouched: True"
