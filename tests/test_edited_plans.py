"""Edited plan files with a right checksum: refused in one sentence, or they run with eager's bits and the right peak."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter

import pytest

import neaptide
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.errors import NeaptideError, PlanError, PlanMismatch, UsageError
from neaptide.outcome import Limits
from neaptide.plans import Plan
from neaptide.policy.plan_matching import matched
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.comparing import contestants, verification
from support import catalogue
from support.damaged_files import change, revalue, written
from support.drawn import examples
from support.steps import QUICK, dropout_factory
from support.together import together

EDITS = examples(600)


@pytest.fixture(scope="module")
def captured():
    return catalogue.captured(dropout_factory)


def planned(share, *, atomic):
    ask = Ask(Budget(share), limits=Limits(work=QUICK["work_limit"]), atomic=atomic)
    plan = catalogue.planned(dropout_factory, ask).plan
    assert len(plan.programs) == 2
    assert all(program.moves.recomputations for program in plan.programs)
    return json.loads(plan.to_json())


@pytest.fixture(scope="module")
def documents():
    return {"usual": planned("70%", atomic=False), "atomic": planned("85%", atomic=True)}


@pytest.fixture(params=["usual", "atomic"])
def document(request, documents):
    return documents[request.param]


def refusal_or_variant(text, captured):
    """What becomes of a plan file: what runs, or the refusal, which must be of a kind that a user can read."""
    try:
        return None, matched(Plan.from_json(text), PreparedStep(captured), 0.05)
    except NeaptideError as raised:
        error = raised
    assert isinstance(error, PlanError | PlanMismatch | UsageError), error
    assert error.what
    assert "\n" not in error.what
    return error, None


class Runs:
    """Runs what has not been run before: is it eager's to the bit, with the predicted peak?"""

    def __init__(self, expected):
        self.expected, self.peaks = expected, {}

    def check(self, variant):
        key = tuple((made.rewrites, made.schedule, made.saved) for made in variant.graphs)
        if key not in self.peaks:
            rebind = contestants.rebind(variant)
            assert verification.verify_planned(dropout_factory, 0, rebind, self.expected)[0].bitwise_equal
            runner = contestants.planned_contestant("edited", dropout_factory, 0, rebind)
            self.peaks[key] = contestants.measure([runner], 0)["edited"].memory.measured_peak_bytes
        assert variant.plan.program("steady").predictions.peak_bytes == self.peaks[key]


@pytest.fixture(scope="module")
def runs():
    return Runs(verification.verify_eager(dropout_factory, 0))


# -- random edits


def test_random_edits_are_refused_or_run_with_eagers_bits_and_the_predicted_peak(document, captured, runs):
    error, variant = refusal_or_variant(written(document), captured)  # not edited
    assert error is None
    runs.check(variant)
    draw = random.Random(5)
    refused = Counter()
    for _ in range(EDITS // 2):
        changed = copy.deepcopy(document)
        revalue(changed["plan"], draw)
        try:
            text = written(changed)
        except (ValueError, OverflowError):
            continue  # nothing that a plan file can say
        error, variant = refusal_or_variant(text, captured)
        refused[error is not None] += 1
        if variant is not None:
            runs.check(variant)
    assert refused[True] > refused[False]


# -- edits that someone might make


def optimizer_again(sequence, captured):
    return [*sequence, [n.id for n in captured.steady.graph.nodes if n.source.phase == "optimizer"][-1]]


def draw_again(sequence, captured):
    return [*sequence, next(n.id for n in captured.steady.graph.nodes if n.effects.rng is not None)]


FIRST = "programs 0"
SEQUENCE = f"{FIRST} sequence"
PEAKS = ("peak_bytes", "peak_with_workspace_bytes")
# What is changed, with the captured step at hand, and the field that is named.
TARGETED = {
    "doubled update": (SEQUENCE, optimizer_again, "sequence"),
    "dropped node": (SEQUENCE, lambda found, _: [*found[:3], *found[4:]], "sequence"),
    "swapped order": (SEQUENCE, lambda found, _: [found[-1], *found[1:-1], found[0]], "sequence"),
    "draw again": (SEQUENCE, draw_again, "programs|moves|sequence|peak_bytes|random_state"),
    "node out of range": (SEQUENCE, lambda found, _: [*found, 10**6], "sequence"),
    "unsaved": (
        f"{FIRST} saved",
        lambda found, captured: [] if found else [captured.steady.graph.input_storages()[0]],
        "saved",
    ),
    "swapped programs": ("programs", lambda found, _: found[::-1], "role"),
    "not atomic": ("atomic", lambda found, _: not found, "saved"),
    "other budget": ("budget peak", lambda *_: "99%", "budget_bytes"),
    "no budget": ("budget peak", lambda *_: "lots", "budget"),
    "lower peak": (
        f"{FIRST} predictions",
        lambda found, _: {**found, **{name: found[name] - 64 for name in PEAKS}},
        "peak",
    ),
    "more workspace": (
        f"{FIRST} assumed workspace",
        lambda _, captured: [[len(captured.steady.graph.nodes) - 1, 2**40]],
        "peak_with_workspace_bytes",
    ),
    "faster": (f"{FIRST} predictions seconds", lambda *_: 0.0, "seconds"),
    "proved": (
        f"{FIRST} termination",
        lambda found, _: {**found, "bound": 2 * found["best"] + 1},
        "bound",
    ),
    "on another device": ("captured_on", lambda *_: "cuda", "captured_on"),
    "other roles": (
        "programs",
        lambda found, _: [{**found[0], "role": "first_1"}, {**found[1], "role": "steady"}],
        "role",
    ),
}


def targeted(document, captured, name):
    """The text of a plan file with one of these edits."""
    changed = copy.deepcopy(document)
    path, edit, _ = TARGETED[name]
    change(changed, f"plan {path}", lambda there: edit(there, captured))
    return written(changed)


@together("name", TARGETED)
def test_edits_are_refused_with_the_name_of_the_field(document, captured, name):
    error, _ = refusal_or_variant(targeted(document, captured, name), captured)
    assert isinstance(error, PlanError)
    assert any(field in error.what for field in TARGETED[name][2].split("|")), error.what
    assert error.next_step


def test_a_file_cannot_allow_itself_other_bits(document, captured):
    """The flag alone changes nothing: what the sequence repeats is checked by what the caller allows."""
    changed = copy.deepcopy(document)
    changed["plan"]["allow_nondeterministic"] = True
    error, _ = refusal_or_variant(written(changed), captured)
    assert error is None
    error, _ = refusal_or_variant(targeted(changed, captured, "doubled update"), captured)
    assert "allow_nondeterministic=True" in error.next_step


def test_a_doubled_update_is_refused_at_the_first_call(documents, captured, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(targeted(documents["usual"], captured, "doubled update"))
    step, batch = dropout_factory()
    with pytest.raises(PlanError, match="sequence"):
        neaptide.apply(path, step)(batch)
    with pytest.raises(PlanError, match="sequence"):
        neaptide.run(dropout_factory, path)


@pytest.mark.parametrize("depth", [1000, 100_000])
def test_nested_nonsense_is_refused(document, depth):
    with pytest.raises(PlanError):
        Plan.from_json('{"format": "neaptide.plan/1", "plan": ' + "[" * depth + "]" * depth + "}")
