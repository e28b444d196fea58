"""The example scripts run, and the planned one trains like the plain one."""

import functools
import re
import runpy
import sys
from pathlib import Path

import pytest

import neaptide

pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def losses(monkeypatch, capsys):
    """What a script prints, and the losses in it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    limited = functools.partial(neaptide.compile_step, time_limit_s=None, work_limit=150)
    monkeypatch.setattr(neaptide, "compile_step", limited)

    def run(script: str) -> tuple[list[str], str]:
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
        printed = capsys.readouterr().out
        return re.findall(r"^step \d: loss (\S+)$", printed, re.MULTILINE), printed

    yield run
    sys.modules.pop("train_mlp", None)


def test_the_planned_script_prints_the_losses_of_the_plain_one_within_its_budget(losses):
    plain, _ = losses("train_mlp.py")
    planned, printed = losses("train_mlp_planned.py")
    assert len(plain) == 5
    assert planned == plain
    share = re.search(r"^peak: (\d+)% of", printed, re.MULTILINE)
    assert share is not None
    assert int(share[1]) <= 60
