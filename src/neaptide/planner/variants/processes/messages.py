"""Processes of this program that are asked and answer: started as modules, spoken with through pipes.

What goes between is pickled objects after their length, in either direction; nobody else writes to the pipes. A worker reads from one
thread while another one loads everything, so nothing is imported here that both would load.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from neaptide.planner.graphs.plan_graph import GraphPlan

_LENGTH: Final = struct.Struct("<Q")
_ENDING_S: Final = 1.0  # for a process that has closed its pipes to end
_STDERR_CHARS: Final = 500


@dataclass(frozen=True)
class Planned:
    """What a worker found: a plan, or why there is none; and what it would have warned of."""

    plan: GraphPlan | None
    told: tuple[str, ...] = ()
    failure: str = ""


def packed(message: Any) -> bytes:
    """A message as bytes. O(size): 90 ms for a graph of 4,600 nodes."""
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def unpacked(block: bytes) -> Any:
    """The message of some bytes that `packed` made."""
    return pickle.loads(block)  # noqa: S301 - from the other end of our own pipe


def write(stream: IO[bytes], block: bytes) -> None:
    """Write one message; an OSError says that nobody reads it."""
    stream.write(_LENGTH.pack(len(block)))
    stream.write(block)
    stream.flush()


def read(stream: IO[bytes]) -> bytes | None:
    """The next message; None where the other end is gone."""
    header = stream.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(header)
    block = stream.read(length)
    return block if len(block) == length else None


class Child:
    """A process of its own that runs a module of this program as a worker; `further` is added to its environment."""

    def __init__(self, module: str, further: Mapping[str, str] | None = None) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this object does
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**(further or {}), **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C is for us; we end it
        )

    def tell(self, block: bytes) -> None:
        """Send a message; an OSError or ValueError says that the process, or its pipe, is closed."""
        assert self.process.stdin is not None
        write(self.process.stdin, block)

    def heard(self) -> bytes | None:
        """The next message from it; None where it is gone."""
        assert self.process.stdout is not None
        return read(self.process.stdout)

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self._errors):
            with contextlib.suppress(OSError):  # it may hold a message that nobody reads any more
                if pipe is not None:
                    pipe.close()

    def last_words(self) -> tuple[str, str]:
        """How a process that has ended did so, and the end of what it wrote to stderr."""
        try:
            code = f"exit code {self.process.wait(_ENDING_S)}"
        except subprocess.TimeoutExpired:
            code = "still running"
        self._errors.seek(0)
        return code, self._errors.read().decode("utf-8", "replace").strip()[-_STDERR_CHARS:]


def asked_of_worker() -> tuple[IO[bytes], queue.SimpleQueue[bytes]]:
    """In a worker: where it answers, and what it is asked. The process ends with its stdin, even in the middle of an answer."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries and the user's program print must not come between the answers
    blocks: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def pass_on() -> None:
        while (block := read(sys.stdin.buffer)) is not None:
            blocks.put(block)
        os._exit(0)

    threading.Thread(target=pass_on, daemon=True).start()
    return output, blocks
