"""The table of programs: a sample at every run, all of it among the slow tests."""

import pytest

from neaptide.outcome import Limits
from programs.catalogue import FAMILIES, every, family, one
from programs.check import ANSWERS, LOWEST, Outcome, check
from programs.check_parts import check_parts
from programs.program import Program
from support.step_checks import joined

# Kinds that have been wrong before: state that is carried, networks that take turns, fused updates. Each takes some seconds.
SAMPLE = (
    ("recurrent", "gru_with_a_carried_state"),
    ("optimizers", "adamw_amsgrad_fused"),
    ("interplay", "hinge_gan_with_flags_toggled"),
)
SEARCH = Limits(time_s=0.3, work=50, seed=0)  # how low the plans are is not what is asked here
BUDGETS = (LOWEST,)  # most repetitions and moves; the slow test has the other one too
LEAST = {"hand-written": 110, "transformers": 45, "optimizers": 30, "all": 200}


def test_programs_run_as_predicted_with_the_bits_of_eager():
    sample = Program("sample", joined(*(one(module, name).factory for module, name in SAMPLE)))
    found = check(sample, SEARCH, BUDGETS)
    assert found.outcome in {Outcome.EXACT, Outcome.FLOOR}, f"{found.outcome}: {found.told}"


def test_names_are_unique_and_every_kind_is_there():
    programs = list(every())
    names = [program.name for _, program in programs]
    assert len(set(names)) == len(names)
    transformers = sum(module.startswith("transformers") for module, _ in programs)
    optimizers = sum(module == "optimizers" for module, _ in programs)
    counts = {
        "hand-written": len(programs) - transformers - optimizers,
        "transformers": transformers,
        "optimizers": optimizers,
        "all": len(programs),
    }
    assert all(counts[kind] >= least for kind, least in LEAST.items()), counts


def test_regions_in_parts_do_what_eager_does():
    found = check_parts(one("attention", "padded_encoder_classifier"))
    assert found.ran
    assert not found.faults


@pytest.mark.slow
@pytest.mark.parametrize("module", FAMILIES)
def test_no_program_in_parts_does_other_than_eager(module):
    found = [check_parts(program) for program in family(module)]
    assert not [(made.name, made.faults) for made in found if made.faults]


@pytest.mark.slow
@pytest.mark.parametrize("module", FAMILIES)
def test_every_program_ends_in_an_answer(module):
    found = [check(program) for program in family(module)]
    faults = [f"{one.name}: {one.outcome}: {one.told}" for one in found if one.outcome not in ANSWERS]
    assert not faults, "\n".join(faults)
