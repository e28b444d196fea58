"""Runs a saved plan, or a script of the tests, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent.parent
_RUN = """
import sys, json, neaptide, {module} as here
report = neaptide.run(here.{factory}, sys.argv[1], verify=True)
print(json.dumps([report.max_abs_diff, report.predicted_peak_bytes, report.measured_peak_bytes]))
"""


def run_elsewhere(module: str, factory: str, plan: Path) -> tuple[dict[str, float], int, int]:
    """Differences from eager by group, predicted and measured peak of a plan for a factory of a module of tests."""
    told = _told(["-c", _RUN.format(module=module, factory=factory), str(plan)], _HERE)
    differences, predicted, measured = json.loads(told.splitlines()[-1])
    return differences, predicted, measured


def told_by(script: Path, *arguments: str) -> Any:
    """What a script prints as JSON: kernels that are handed wrong lengths may end its process."""
    return json.loads(_told([script.name, *arguments], script.parent))


def _told(arguments: list[str], folder: Path) -> str:
    paths = os.pathsep.join([*filter(None, sys.path), str(_HERE)])
    ran = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
