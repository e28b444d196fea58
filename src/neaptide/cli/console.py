"""Everything the command line prints goes through here: results to stdout, all else to stderr."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, Final, TextIO

from neaptide.cli import exit_codes
from neaptide.errors import InfeasibleBudget, NeaptideError
from neaptide.units import AmbiguousUnitWarning

if TYPE_CHECKING:
    from neaptide.report.document import Document

_LOGGER: Final = "neaptide"
# Of a message, in characters and lines. Messages of our own stay below.
_LONGEST_LINE: Final = 600
_MOST_LINES: Final = 20
# Control characters but for tabs and line ends, marks that turn the direction of writing, and halves of characters.
_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LOG_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)


@contextmanager
def undisturbed_stdout() -> Iterator[None]:
    """Keeps stdout for what Python prints: notes that libraries print there from C go to stderr.

    HiGHS has such notes, and one of them in front of a JSON object is one too many.
    """
    before = sys.__stdout__
    # A program without stdout, such as one of pythonw, or one whose Python output goes elsewhere already.
    if before is None or sys.stdout is not before:
        yield
        return
    before.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(own, "w", encoding=before.encoding, errors=before.errors) as stream:
        sys.stdout = stream
        try:
            yield
        finally:
            stream.flush()
            sys.stdout = before
            os.dup2(own, 1)


class Console:
    """Where a command prints.

    Args:
        as_json: the result is one JSON object on stdout, an error too.

    Attributes:
        quiet: no progress; notes and errors only.
        verbosity: 1 adds information and tracebacks of bugs, 2 adds details and tracebacks of every error.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.quiet = False
        self.verbosity = 0

    def configure(self, *, as_json: bool, quiet: bool, verbosity: int) -> None:
        """Takes the options that every command has."""
        self.as_json, self.quiet, self.verbosity = as_json, quiet, verbosity
        # The level of the logger, not of our handler: a handler of the user's program hears no more than ours.
        level = logging.ERROR if quiet else _LOG_LEVELS[min(verbosity, len(_LOG_LEVELS) - 1)]
        logging.getLogger(_LOGGER).setLevel(level)

    def document(self, content: Document) -> None:
        """Prints a report: drawn when stdout is a terminal, plain text when it is piped."""
        if _is_terminal(sys.stdout):
            from neaptide.cli.terminal import draw

            draw(content)
        else:
            self.result(content.plain())

    def result(self, text: str) -> None:
        """Prints a result as it is."""
        try:
            print(text, flush=True)
        except BrokenPipeError:
            # The reader, such as `head`, has seen enough. Python flushes once more at exit: let it have somewhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def json(self, content: Mapping[str, Any]) -> None:
        """Prints one JSON object."""
        self.result(json.dumps(content, indent=2))

    def progress(self, message: str) -> None:
        """Says what is being done."""
        if not self.quiet:
            print(message, file=sys.stderr, flush=True)

    def note(self, message: str) -> None:
        """Says something that the user should know and that is no result; `quiet` does not silence it."""
        print(f"note: {message}", file=sys.stderr, flush=True)

    def failure(self, error: NeaptideError) -> int:
        """Prints an error that neaptide raised on purpose; returns its exit code."""
        if self.verbosity >= 2:
            traceback.print_exception(error, file=sys.stderr)
        else:
            print(f"error: {_readable(error.render())}", file=sys.stderr)
        self._json_error(
            type(error).__name__, error.exit_code, error.what, error.where, error.why, error.next_step, error
        )
        return error.exit_code

    def usage_failure(self, message: str) -> int:
        """Records a mistake in the arguments, which click has shown already; returns the exit code."""
        self._json_error("UsageError", exit_codes.USAGE, message)
        return exit_codes.USAGE

    def bug(self, error: Exception) -> int:
        """Prints an exception that nobody meant to raise; returns the exit code."""
        if self.verbosity >= 1:
            traceback.print_exception(error, file=sys.stderr)
        what = f"{type(error).__name__}: {error}"
        print(f"error: unexpected {what}", file=sys.stderr)
        frames = traceback.extract_tb(error.__traceback__)
        if frames:
            print(f"  where: {frames[-1].filename}:{frames[-1].lineno}", file=sys.stderr)
        print("  why: this is a bug, in neaptide or in the program it was given", file=sys.stderr)
        print("  next: run again with -v for the traceback, and report it", file=sys.stderr)
        self._json_error(type(error).__name__, exit_codes.BUG, what)
        return exit_codes.BUG

    def interrupted(self) -> int:
        """Says that there is no result; returns the exit code."""
        print("interrupted", file=sys.stderr)
        self._json_error("KeyboardInterrupt", exit_codes.INTERRUPTED, "interrupted")
        return exit_codes.INTERRUPTED

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Sends log records and warnings to stderr in the form of everything else."""
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
        logger = logging.getLogger(_LOGGER)
        level = logger.level
        logger.setLevel(_LOG_LEVELS[0])
        logger.addHandler(handler)
        try:
            with warnings.catch_warnings():
                warnings.showwarning = self._show_warning(warnings.showwarning)
                yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)

    @contextmanager
    def user_code(self) -> Iterator[None]:
        """What the user's program prints goes to stderr, so that stdout holds the result alone."""
        with redirect_stdout(sys.stderr):
            yield

    def _show_warning(self, otherwise: Any) -> Any:
        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, AmbiguousUnitWarning):
                self.note(str(message))
            else:
                otherwise(message, category, filename, lineno, file, line)

        return show

    def _json_error(
        self,
        kind: str,
        exit_code: int,
        what: str,
        where: str | None = None,
        why: str | None = None,
        next_step: str | None = None,
        error: NeaptideError | None = None,
    ) -> None:
        if not self.as_json:
            return
        content: dict[str, Any] = {
            "class": kind,
            "exit_code": exit_code,
            "what": what,
            "where": where,
            "why": why,
            "next_step": next_step,
        }
        if isinstance(error, InfeasibleBudget):
            content["smallest_peak_bytes"] = error.smallest_peak_bytes
            content["lower_bound_bytes"] = error.lower_bound_bytes
            content["alive"] = list(error.alive)
        self.json({"error": content})


def _readable(text: str) -> str:
    """A message that may quote a damaged file: long lines are cut in the middle, what moves the cursor is replaced."""
    lines = _UNPRINTABLE.sub("\ufffd", text).split("\n")
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 4], "  ...", *lines[-3:]]
    half = _LONGEST_LINE // 2
    return "\n".join(f"{li[:half]} ... {li[-half:]}" if len(li) > _LONGEST_LINE else li for li in lines)


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"
