from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from neaptide.cli import main
from neaptide.cli.process import exit_codes
from neaptide.cli.process.exit_codes import exhausted
from support.together import together


def caused(error, cause):
    error.__cause__ = cause
    return error


@together(
    ("error", "told"),
    [
        (MemoryError(), "no more memory"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "no more memory"),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
            "no more memory",
        ),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "no more memory"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "no more files"),
        (caused(ValueError("read"), OSError(errno.ENFILE, os.strerror(errno.ENFILE))), "no more files"),
        (ImportError("libgomp.so: cannot open shared object file: Too many open files"), "no more files"),
        (RuntimeError("can't start new thread"), "no more threads"),
        (BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "no more threads"),
    ],
)
def test_what_a_limit_of_the_machine_ends_is_one_sentence_and_no_bug(error, told, monkeypatch, capsys):
    def ends(*_args, **_options):
        raise error

    monkeypatch.setattr(main.cli, "main", ends)
    assert main.main(["devices"]) == exit_codes.USAGE
    printed = capsys.readouterr().err
    assert told in printed
    assert "bug" not in printed


@together("error", [RuntimeError("shapes differ"), OSError(errno.EIO, "lost"), ValueError("memory")])
def test_other_errors_are_no_limit_of_the_machine(error):
    assert exhausted(error) is None


def run(code, **options):
    made = [sys.executable, "-c", f"import sys; from neaptide.cli.main import main; {code}"]
    return subprocess.run(made, capture_output=True, text=True, check=False, **options)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="streams are closed in between fork and exec")
@together("closed", [[1], [2], [1, 2]], quick=(2,))
def test_streams_that_are_closed_are_no_bug(closed):
    def close():
        for descriptor in closed:
            os.close(descriptor)

    # A file that is opened later must not become what libraries print to.
    code = "import os; sys.argv[1:] = ['devices']; code = main(); os._exit(code + 40 * (os.open('.', 0) < 3))"
    ended = run(code, preexec_fn=close)
    assert ended.returncode == exit_codes.DONE
    assert "bug" not in ended.stderr
