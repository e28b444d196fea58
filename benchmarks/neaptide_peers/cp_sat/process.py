"""Starts the worker, talks to it, and ends it: the only module that handles the process."""

from __future__ import annotations

import contextlib
import importlib.util
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Final

import msgspec

from neaptide.errors import MissingExtra, SolverError
from neaptide.outcome import Stopwatch
from neaptide_peers.cp_sat.messages import REPORT, Bound, Ended, Found, Ready, Report, SolveRequest, line_of

_WORKER: Final = "neaptide_peers.cp_sat.worker"
_POLL_S: Final = 0.02  # how late an interrupt may be seen
_STDERR_CHARS: Final = 2000  # the end of what the worker wrote: a traceback
_GRACE_S: Final = (
    0.1  # the solver looks at its clock now and then; beyond that, and a share of the limit, it is ended
)
_GRACE_SHARE: Final = 0.03


def is_installed() -> bool:
    """Whether OR-tools is there to be imported; this does not import it."""
    return importlib.util.find_spec("ortools") is not None


def require_installed() -> None:
    """Make sure that OR-tools is there.

    Raises:
        MissingExtra: it is not; names the pip command.
    """
    if not is_installed():
        raise MissingExtra(
            "ortools is not installed",
            why="the constraint solver CP-SAT comes with it",
            next_step='pip install "ortools>=9.10,!=9.12.*"',
        )


class Conversation:
    """What the worker has said about one model so far.

    Attributes:
        values: the best solution.
        bound: of the objective.
        ended: its last word; None where it was cut short.
        stopped_by: `time` or `interrupt` where it was cut short.
    """

    def __init__(self) -> None:
        self.values: tuple[int, ...] | None = None
        self.bound: float | None = None
        self.ended: Ended | None = None
        self.stopped_by: str | None = None

    def hear(self, report: Report) -> None:
        """Take in what the worker says."""
        match report:
            case Found(values):
                self.values = values
            case Bound(objective):
                self.bound = objective if self.bound is None else max(self.bound, objective)
            case Ended(bound=bound):
                self.ended = report
                if bound is not None:
                    self.bound = bound if self.bound is None else max(self.bound, bound)
            case Ready():
                pass


class WorkerProcess:
    """A worker that solves one model after another; started when it is first needed, and again if it had to be ended.

    Whoever makes one calls `dispose` in the end.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this object does

    def solve(
        self,
        make_request: Callable[[float | None], SolveRequest],
        time_s: float | None,
        stop: Callable[[], bool] | None,
    ) -> Conversation:
        """Let the worker solve a model, and listen until it is done, time is up or `stop` says so.

        Args:
            make_request: the request, given the seconds that are left once the solver is loaded.
            time_s: wall-clock seconds for everything, starting the process included.
            stop: asked again and again; when it says yes, the worker is ended.

        Raises:
            MissingExtra: OR-tools is not installed.
            SolverError: the worker died, or spoke nonsense.
        """
        watch = Stopwatch()
        said = Conversation()
        cut_s = None if time_s is None else time_s + max(_GRACE_S, _GRACE_SHARE * time_s)
        if self._process is None:
            if stop is not None and stop():
                said.stopped_by = "interrupt"
                return said
            self._start()
            if not self._listen(said, Ready, watch, time_s, stop):
                return said
        left = None if time_s is None else time_s - watch.seconds()
        if left is not None and left <= 0:
            said.stopped_by = "time"
            return said
        self._write(make_request(left))
        self._listen(said, Ended, watch, cut_s, stop)
        return said

    def dispose(self) -> None:
        """End the process and let go of everything."""
        self._close()
        self._errors.close()

    def _close(self) -> None:
        """End the process, whatever it is doing."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):  # a request half read: there is nobody left to tell
            self._process.stdin.close()
        self._process = None
        self._lines = queue.SimpleQueue()

    def _start(self) -> None:
        require_installed()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for us; we end it
        )
        threading.Thread(target=_pump, args=(self._process, self._lines), daemon=True).start()

    def _write(self, request: SolveRequest) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line_of(request))
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._died() from error

    def _listen(
        self,
        said: Conversation,
        last: type[Ready | Ended],
        watch: Stopwatch,
        until_s: float | None,
        stop: Callable[[], bool] | None,
    ) -> bool:
        """Take in reports up to the first of the kind `last`; False, with the worker ended, if that did not come."""
        while True:
            if stop is not None and stop():
                said.stopped_by = "interrupt"
            elif until_s is not None and watch.seconds() >= until_s:
                said.stopped_by = "time"
            if said.stopped_by is not None:
                self._drain(said)
                self._close()
                return said.ended is not None
            report = self._next(_POLL_S)
            if report is not None:
                said.hear(report)
                if isinstance(report, last):
                    return True

    def _next(self, wait_s: float) -> Report | None:
        try:
            line = self._lines.get(timeout=wait_s)
        except queue.Empty:
            return None
        if not line:
            raise self._died()
        try:
            return REPORT.decode(line)
        except msgspec.DecodeError as error:
            self._close()
            raise SolverError(
                "the CP-SAT worker said something that cannot be read", why=f"{error}: {line[:200]!r}"
            ) from error

    def _drain(self, said: Conversation) -> None:
        """Take in what lies there already: a better solution may be among it."""
        while not self._lines.empty():
            report = self._next(_POLL_S)
            if report is not None:
                said.hear(report)

    def _died(self) -> SolverError:
        assert self._process is not None
        code = self._process.wait()
        self._close()
        self._errors.seek(0)
        text = self._errors.read().decode("utf-8", "replace").strip()[-_STDERR_CHARS:]
        self._errors.seek(0, 2)
        return SolverError(
            "the CP-SAT worker died",
            where=f"python -m {_WORKER}, exit code {code}",
            why=text or "it wrote nothing to stderr",
            next_step="solve without CP-SAT, or check that `python -c 'import ortools'` works",
        )


def _pump(process: subprocess.Popen[bytes], lines: queue.SimpleQueue[bytes]) -> None:
    """Pass on what the worker writes; an empty line is the end."""
    assert process.stdout is not None
    with process.stdout as stdout:
        for line in stdout:
            lines.put(line)
    lines.put(b"")
