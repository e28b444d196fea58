"""The check of a card says that there is none, and is no failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).parents[1] / "benchmarks" / "gpu" / "run"


def test_without_a_card_the_check_says_so_and_succeeds():
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, str(RUN)], capture_output=True, text=True, env=hidden, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["There is no card here that PyTorch can use: nothing was checked."]
