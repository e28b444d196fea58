"""Everything the command line prints goes through here: results to stdout, all else to stderr."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from neaptide.cli.process import exit_codes
from neaptide.cli.process.streams import silence
from neaptide.errors import InfeasibleBudget, NeaptideError, TargetError, UsageError
from neaptide.report.document import Document
from neaptide.units import AmbiguousUnitWarning

if TYPE_CHECKING:
    import click


_LOGGER: Final = "neaptide"
_NOT_PRINTED: Final = "the result cannot be printed"
_LONGEST_WARNING: Final = 200
# Of a message, in characters and lines. Messages of our own stay below.
_LONGEST_LINE: Final = 600
_MOST_LINES: Final = 20
# Control characters but for tabs and line ends, marks that turn the direction of writing, and halves of characters.
_UNPRINTABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LOG_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)


class Console:
    """Where a command prints. With `as_json` the result is one JSON object on stdout, an error too.

    `quiet`: no progress; notes and errors only. A `verbosity` of 1 adds information and tracebacks of bugs, 2 adds details and
    tracebacks of every error.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.quiet = False
        self.verbosity = 0
        self._warned: set[str] = set()

    def configure(self, *, quiet: bool, verbosity: int) -> None:
        """Takes the options about how much is printed; those before the command and after it add up."""
        self.quiet, self.verbosity = self.quiet or quiet, self.verbosity + verbosity
        # The level of the logger, not of our handler: a handler of the user's program hears no more than ours.
        level = logging.ERROR if self.quiet else _LOG_LEVELS[min(self.verbosity, len(_LOG_LEVELS) - 1)]
        logging.getLogger(_LOGGER).setLevel(level)

    def document(self, content: Document) -> None:
        """Prints a report: drawn when stdout is a terminal, plain text when it is piped."""
        if _is_terminal(sys.stdout):
            from neaptide.cli.process.terminal import draw

            with self._printing():
                draw(content)
        else:
            self.result(content.plain())

    def result(self, text: str) -> None:
        """Prints a result as it is."""
        with self._printing():
            try:
                print(text, flush=True)
            except UnicodeEncodeError:
                # A terminal without the letters of a name: the result is worth more than they are.
                encoding = sys.stdout.encoding
                print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)

    def cannot_print(self, error: OSError) -> bool:
        """Whether an error is about stdout or stderr itself, as when click prints a help text; then says so."""
        frames = traceback.extract_tb(error.__traceback__)
        if not frames or "click" not in Path(frames[-1].filename).parts:
            return False
        silence(sys.stdout)
        self._say(f"error: {_NOT_PRINTED}\n  why: {error.strerror}")
        return True

    @contextmanager
    def _printing(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            # The reader, such as `head`, has seen enough.
            silence(sys.stdout)
        except OSError as error:
            silence(sys.stdout)
            raise UsageError(
                _NOT_PRINTED, where="stdout", why=error.strerror, next_step="send it elsewhere, or use -o"
            ) from error

    def _say(self, text: str) -> None:
        """Prints to stderr; where that is closed or full, there is nobody to tell."""
        try:
            print(text, file=sys.stderr, flush=True)
        except (OSError, ValueError):
            silence(sys.stderr)

    def json(self, content: Mapping[str, Any]) -> None:
        """Prints one JSON object."""
        self.result(json.dumps(content, indent=2))

    def progress(self, message: str) -> None:
        """Says what is being done."""
        if not self.quiet:
            self._say(message)

    def note(self, message: str) -> None:
        """Says something that the user should know and that is no result; `quiet` does not silence it."""
        self._say(f"note: {message}")

    def failure(self, error: NeaptideError) -> int:
        """Prints an error that neaptide raised on purpose; returns its exit code."""
        if self.verbosity >= 2:
            self._say("".join(traceback.format_exception(error)).rstrip())
        else:
            self._say(f"error: {_readable(error.render())}")
        self._json_error(
            type(error).__name__, error.exit_code, error.what, error.where, error.why, error.next_step, error
        )
        return error.exit_code

    def usage_failure(self, error: click.ClickException) -> int:
        """Shows a mistake in the arguments; returns the exit code."""
        shown = io.StringIO()
        error.show(file=shown)
        self._say(_readable(shown.getvalue().rstrip()))
        self._json_error("UsageError", exit_codes.USAGE, error.format_message())
        return exit_codes.USAGE

    def bug(self, error: Exception) -> int:
        """Prints an exception that nobody meant to raise; returns the exit code."""
        if self.verbosity >= 1:
            self._say("".join(traceback.format_exception(error)).rstrip())
        what = f"{type(error).__name__}: {error}"
        lines = [f"error: unexpected {_readable(what)}"]
        frames = traceback.extract_tb(error.__traceback__)
        if frames:
            lines.append(f"  where: {frames[-1].filename}:{frames[-1].lineno}")
        lines.append("  why: this is a bug, in neaptide or in the program it was given")
        lines.append("  next: run again with -v for the traceback, and report it")
        self._say("\n".join(lines))
        self._json_error(type(error).__name__, exit_codes.BUG, what)
        return exit_codes.BUG

    def interrupted(self) -> int:
        """Says that there is no result; returns the exit code."""
        self._say("interrupted")
        self._json_error("KeyboardInterrupt", exit_codes.INTERRUPTED, "interrupted")
        return exit_codes.INTERRUPTED

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Sends log records and warnings to stderr in the form of everything else."""
        handler = logging.StreamHandler(sys.stderr)
        handler.addFilter(self._is_new)
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
        """What the user's program prints goes to stderr, and the folder it changes to is left again."""
        folder = Path.cwd()
        try:
            with redirect_stdout(sys.stderr):
                yield
        except (SystemExit, GeneratorExit) as error:
            frames = traceback.extract_tb(error.__traceback__)
            raise TargetError(
                "the program ends the process",
                where=f"{frames[-1].filename}:{frames[-1].lineno}",
                why=f"it raises {error!r}",
                next_step="return instead of calling sys.exit",
            ) from error
        finally:
            with suppress(OSError):
                os.chdir(folder)

    def _is_new(self, record: logging.LogRecord) -> bool:
        """Whether a record has not been shown; with `-v` all are."""
        text = f"{record.levelname}: {record.getMessage()}"
        seen = text in self._warned
        self._warned.add(text)
        return not seen or self.verbosity > 0

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
            elif self.verbosity:
                otherwise(message, category, filename, lineno, file, line)
            elif not self.quiet:
                words = " ".join(str(message).split())
                cut = words if len(words) <= _LONGEST_WARNING else f"{words[:_LONGEST_WARNING]}..."
                if cut not in self._warned:
                    self._warned.add(cut)
                    self._say(f"warning: {_readable(cut)} ({category.__name__}, {filename}:{lineno})")

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
            content["live"] = list(error.live)
        with suppress(UsageError):  # nobody to tell: the code says it
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
