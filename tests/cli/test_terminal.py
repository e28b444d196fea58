"""Drawing on a terminal, and the choice between that and plain text."""

import io
import logging
import subprocess
import sys
import warnings

import pytest
import rich.console

from neaptide.cli.process.console import Console
from neaptide.cli.process.terminal import draw
from neaptide.report.document import Table, document

CONTENT = document("Title of it", Table(("", "bytes"), (("peak [bold]", "12"),)), "Next: do [red]it[/red]")


def drawn(**options):
    screen = io.StringIO()
    draw(CONTENT, rich.console.Console(file=screen, force_terminal=True, width=60, **options))
    return screen.getvalue()


def test_square_brackets_are_text_and_not_markup():
    text = drawn(no_color=True)
    assert "peak [bold]" in text
    assert "[red]it[/red]" in text


def test_no_color_leaves_no_colour(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in drawn()


@pytest.mark.parametrize(
    ("terminal", "term", "plain"), [(False, "xterm", True), (True, "dumb", True), (True, "xterm", False)]
)
def test_only_a_terminal_gets_a_drawing(monkeypatch, terminal, term, plain):
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("TERM", term)
    Console().document(CONTENT)
    assert (stream.getvalue() == CONTENT.plain() + "\n") is plain
    assert "Title of it" in stream.getvalue()


@pytest.mark.parametrize(
    ("quiet", "verbosity", "heard"),
    [
        (True, 0, ["ERROR"]),
        (False, 0, ["ERROR", "WARNING"]),
        (False, 1, ["ERROR", "WARNING", "INFO"]),
        (False, 5, ["ERROR", "WARNING", "INFO", "DEBUG"]),
    ],
)
def test_log_records_go_to_stderr_by_level(capsys, quiet, verbosity, heard):
    logger = logging.getLogger("neaptide.somewhere")
    console = Console()
    with console.listening():
        console.configure(quiet=quiet, verbosity=verbosity)
        for level in ("ERROR", "WARNING", "INFO", "DEBUG"):
            logger.log(getattr(logging, level), "said")
    logger.error("after")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.split(":")[0] for line in captured.err.splitlines() if "after" not in line] == heard
    assert logging.getLogger("neaptide").level == logging.NOTSET


def test_what_libraries_print_to_stdout_from_c_goes_to_stderr():
    program = (
        "import os\n"
        "from neaptide.cli.process.streams import undisturbed_stdout\n"
        "with undisturbed_stdout():\n"
        "    os.write(1, b'noise\\n')\n"
        "    print('result')\n"
        "print('after', flush=True)\n"
        "os.write(1, b'plain\\n')\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "result\nafter\nplain\n"
    assert ran.stderr == "noise\n"


@pytest.mark.parametrize(("quiet", "verbosity", "lines"), [(False, 0, 2), (True, 0, 0)])
def test_a_warning_is_one_line_once(capsys, quiet, verbosity, lines):
    console = Console()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with console.listening():
            console.configure(quiet=quiet, verbosity=verbosity)
            for _ in range(3):
                warnings.warn(
                    "a library says\n  something\nin " + "many words " * 50, FutureWarning, stacklevel=1
                )
                warnings.warn("and something else", UserWarning, stacklevel=1)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == lines
    for line in said:
        assert line.startswith("warning: ")
        assert "test_terminal.py" in line
        assert len(line) < 400
