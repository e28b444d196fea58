from __future__ import annotations

import json
from dataclasses import replace

import pytest

from neaptide.errors import PlanError
from neaptide.outcome import Termination, TerminationReason
from neaptide.plans import (
    BudgetRecord,
    MovesSummary,
    Plan,
    PlannedProgram,
    Predictions,
    Recomputation,
)
from neaptide.plans.plan_file import checksum
from support.together import together

PROGRAM = PlannedProgram(
    role="steady",
    name="gpt",
    fingerprint="ab" * 32,
    node_count=3,
    sequence=(0, 1, 0, 2),
    strategy="greedy_recompute",
    budget_bytes=1000,
    moves=MovesSummary(1, ("head",), (Recomputation(4, "act", 512, 0.25, (0,), 2),)),
    predictions=Predictions(900, 950, 1500, 1600, 100, 400, 800, 1.25, 1.0),
    termination=Termination(TerminationReason.FEASIBLE, "time", "", 1.25, 1.0),
)
PLAN = Plan(
    (PROGRAM, replace(PROGRAM, role="first_1")),
    name="step",
    budget=BudgetRecord("60%", "+10%", 7),
    seed=3,
    device="cpu",
    versions={"neaptide": "0.1.0", "torch": "2.13"},
    atomic=True,
    signature=(("batch[0]", "(2, 3)"), ("grad mode", "True")),
)


def test_a_plan_survives_its_text_and_its_file(tmp_path):
    assert Plan.from_json(PLAN.to_json()) == PLAN
    PLAN.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == PLAN
    assert Plan.load(str(tmp_path / "plan.json")).to_json() == PLAN.to_json()


def test_programs_are_found_by_role():
    assert PLAN.program("first_1").role == "first_1"
    with pytest.raises(PlanError, match="no program for 'second'"):
        PLAN.program("second")


def edited(**changes):
    document = json.loads(PLAN.to_json())
    document.update(changes)
    return json.dumps(document)


@together(
    ("text", "message"),
    [
        (PLAN.to_json()[:200], "truncated or no JSON"),
        ("", "truncated or no JSON"),
        (b"\xff\xfe", "truncated or no JSON"),
        ("[1, 2]", "no plan"),
        ('{"format": "other/1"}', "no plan"),
        (edited(format="neaptide.plan/99"), "unknown format 'neaptide.plan/99'"),
        (edited(checksum="sha256:0"), "has been changed"),
        (PLAN.to_json().replace('"seed": 3', '"seed": 4'), "has been changed"),
        (PLAN.to_json().replace("greedy_recompute", "program_order"), "has been changed"),
    ],
)
def test_broken_files_are_refused_with_their_path_and_the_next_step(tmp_path, text, message):
    path = tmp_path / "broken.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(PlanError, match=message) as caught:
        Plan.load(path)
    assert caught.value.where == str(path)
    assert caught.value.next_step


def test_a_field_of_the_wrong_type_is_refused_even_with_a_right_checksum(monkeypatch):
    document = json.loads(PLAN.to_json())
    document["plan"]["programs"][0]["node_count"] = "three"
    monkeypatch.setattr("neaptide.plans.plan_file.checksum", lambda _: document["checksum"])
    with pytest.raises(PlanError, match="lacks a field"):
        Plan.from_json(json.dumps(document))


@together(
    ("place", "named"),
    [
        (lambda document: document, "colour"),
        (lambda document: document["plan"], "colour"),
        (lambda document: document["plan"]["programs"][0], r"programs\[0\].colour"),
        (
            lambda document: document["plan"]["programs"][0]["predictions"],
            r"programs\[0\].predictions.colour",
        ),
    ],
)
def test_a_field_that_nobody_reads_is_refused(place, named):
    document = json.loads(PLAN.to_json())
    place(document)["colour"] = "blue"
    document["checksum"] = checksum(document["plan"])
    with pytest.raises(PlanError, match=f"has the field '{named}', which") as raised:
        Plan.from_json(json.dumps(document))
    assert raised.value.next_step


def test_what_earlier_versions_told_readers_is_passed_over():
    document = json.loads(PLAN.to_json())
    document["plan"]["programs"][0]["closer"] = {"label": "in 2 parts", "peak_bytes": 100, "seconds": 0.5}
    document["checksum"] = checksum(document["plan"])
    assert Plan.from_json(json.dumps(document)) == PLAN


def test_fields_are_read_by_the_names_that_they_had():
    plan = replace(PLAN, budget=replace(PLAN.budget, clock_factor=1.5))
    document = json.loads(plan.to_json())
    document["plan"]["budget"]["pace"] = document["plan"]["budget"].pop("clock_factor")
    for program in document["plan"]["programs"]:
        program["predictions"]["resident_bytes"] = program["predictions"].pop("persistent_bytes")
    document["checksum"] = checksum(document["plan"])
    assert Plan.from_json(json.dumps(document)) == plan


def test_a_missing_file_and_an_unwritable_one_are_plan_errors(tmp_path):
    with pytest.raises(PlanError, match="cannot be read"):
        Plan.load(tmp_path / "nothing.json")
    with pytest.raises(PlanError, match="cannot be saved"):
        PLAN.save(tmp_path / "no" / "folder.json")


def test_equal_plans_have_equal_texts_whatever_the_order_of_their_dicts():
    other = replace(PLAN, versions=dict(reversed(PLAN.versions.items())))
    assert other.to_json() == PLAN.to_json()
