"""The example scripts run, and the planned one trains like the plain one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[1] / "examples"


def losses(script: str) -> tuple[list[str], str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=EXAMPLES,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return re.findall(r"^step \d: loss (\S+)$", done.stdout, re.MULTILINE), done.stdout


def test_the_planned_script_prints_the_losses_of_the_plain_one_within_its_budget():
    plain, _ = losses("train_mlp.py")
    planned, printed = losses("train_mlp_planned.py")
    assert len(plain) == 5
    assert planned == plain
    share = re.search(r"^peak: (\d+)% of", printed, re.MULTILINE)
    assert share is not None
    assert int(share[1]) <= 60
