"""Files that we write: whole or not at all.

A disk may be full, a process may be killed, and where a file stood before, it stays until the new one is whole. What is no
ordinary file, such as a device or a pipe, has nothing to lose and is written as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_SHOWN: Final = 100
"""Characters of a name that the name of its draft begins with: names have at most 255."""


def write_atomic(path: str | Path, text: str) -> None:
    """Write a file of UTF-8 text so that a reader, or a second writer, never sees half of it.

    A link stays a link, and a file keeps its permissions.
    """
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A path to write to, with the suffix of the file; after it, what was written is the file."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        yield target
        return
    draft = target.with_name(f".{target.name[:_SHOWN]}.{os.urandom(4).hex()}{target.suffix[:_SHOWN]}")
    # Made by hand: files of `tempfile` are for their owner alone.
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        with suppress(FileNotFoundError):
            draft.chmod(target.stat().st_mode & 0o7777)
        yield draft
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
