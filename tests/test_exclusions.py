"""What excludes each other is refused from the options alone: nothing is loaded, built or captured by then."""

from __future__ import annotations

import subprocess
import sys

import pytest

from neaptide.budget import Budget, check_unit
from neaptide.cli.main import main
from neaptide.cli.process import exit_codes
from neaptide.errors import InvalidBudget, UsageError
from neaptide.options import EXCLUSIONS, WORDS, asked_for, refuse_exclusions
from neaptide.settings import TABLE
from support.together import together

RANGE = ("--dynamic", "x:0=2..9")


def test_the_table_speaks_of_what_there_is():
    for one in EXCLUSIONS:
        assert {one.first, one.second, *one.where} <= set(WORDS)
        assert one.why
        assert one.next_step
    for _, flag in WORDS.values():
        if flag.startswith("--"):
            name = flag.split()[0].removeprefix("--").removeprefix("no-").replace("-", "_")
            assert name in TABLE


@together(
    ("command", "options", "told"),
    [
        ("compare", ("--arena", "--host", "2MiB"), "--arena and --host"),
        ("compare", ("--arena", "--device", "rtx3090", "--peak", "70%"), "--arena and --device"),
        ("compare", ("--trials", "2", "--peak", "70%", "--device", "rtx3090"), "--trials and --device"),
        ("compare", ("--trials", "2"), "--trials and a budget without --peak or --latency"),
        ("compare", ("--no-eager", "--verify"), "--verify and --no-eager"),
        ("compare", (*RANGE, "--peak", "70%", "--also", "block_dp"), "--dynamic and --also"),
        ("compare", RANGE, "--dynamic and a budget without --peak"),
        ("compare", (*RANGE, "--peak", "min"), "--dynamic and --peak min"),
        ("compare", ("--peak", "70%", "--at", "3"), "--at names shapes"),
        ("plan", (*RANGE, "--peak", "70%", "--trials", "2"), "--dynamic and --trials"),
        ("plan", (*RANGE, "--peak", "70%", "--atomic"), "--dynamic and --atomic"),
        ("plan", (*RANGE, "--peak", "70%", "--numerics", "close"), "--numerics close and a saved plan"),
        ("plan", (*RANGE, "--latency", "+5%"), "--dynamic and --latency"),
        ("plan", ("--peak", "70%", "--atomic", "--numerics", "close"), "--atomic and --numerics close"),
        (
            "plan",
            ("--peak", "70%", "--host", "1MiB", "--state-between-steps", "--atomic"),
            "--state-between-steps and --atomic",
        ),
        ("profile", ("--fit", "2GiB"), "--fit asks for shapes"),
        ("plan", ("--peak", "45"), "did you mean 45% or 45GiB"),
        ("compare", ("--peak", "250"), "did you mean 250GiB"),
    ],
)
def test_options_are_refused_before_a_program_is_looked_at(command, options, told, capsys):
    # The program is not there, so anything else would be told if it were looked for.
    assert main([command, "gone.py:factory", *options]) == exit_codes.USAGE
    printed = capsys.readouterr().err
    assert told in printed
    assert "next:" in printed


def test_neither_torch_nor_numpy_is_loaded_by_then():
    code = (
        "import sys; from neaptide.cli.main import main; "
        "code = main(['compare', 'gone.py:factory', '--arena', '--host', '3GiB']); "
        "assert not {'torch', 'numpy'} & set(sys.modules); sys.exit(code)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == exit_codes.USAGE, ended.stderr


def test_python_tells_them_in_its_own_words():
    asked = asked_for({"budget": Budget("70%", host="1MiB")})
    refuse_exclusions(asked)
    with pytest.raises(UsageError, match="an arena and room on the host exclude each other"):
        refuse_exclusions({*asked, "arena"})


@together("peak", ["60", "0.5", 60, "999"])
def test_bytes_that_are_too_few_for_any_step_are_asked_about(peak):
    with pytest.raises(InvalidBudget, match=r"did you mean .*GiB"):
        check_unit(peak)


@together("peak", ["60%", "60B", "1000", 4096, "min", "-30%", None])
def test_other_budgets_are_meant(peak):
    check_unit(peak)
