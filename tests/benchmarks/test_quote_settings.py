"""The tables of settings: what changes an answer has a line, what changes none is named below."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import quote_settings
from ablation_cases import STAGES, WHOLE


def answers(room, **values):
    usual = {"value": 100, "missed": False}
    rows = {stage: usual | {"value": values.get(stage.replace(" ", "_"), 100)} for stage in STAGES[room]}
    return {"room": room, "work_limit": 1000, "without": {WHOLE: usual, **rows}}


def test_worse_and_better_are_counted_and_settings_without_effect_are_named():
    rows = [
        answers("layout_settings", dives_half=110, dives_twice=90),
        answers("layout_settings", dives_half=101),
    ]
    text = quote_settings.table("layout_settings", rows)
    assert "| `dives` | 2 / 0 | 0 / 1 |" in text
    assert "2 cases, 1,000 units of work each. No answer changes with" in text
    assert "`dive_noise`" in text
    assert text.count("| `") == 1


def test_the_page_says_what_was_measured():
    result = json.loads(quote_settings.ABLATION.read_text())
    page = quote_settings.PAGE.read_text()
    assert quote_settings.filled(page, result) == page
