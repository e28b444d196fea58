"""What may be in the repository: sources and text, nothing large and nothing that only a machine can read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MOST_BYTES = 1 << 20
LARGE_FOLDERS = ("docs", "benchmarks/results")


def tracked() -> list[Path]:
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def allowed(path: Path) -> bool:
    return path.relative_to(ROOT).as_posix().startswith(tuple(f"{folder}/" for folder in LARGE_FOLDERS))


def test_no_file_is_large_and_none_is_binary():
    files = [path for path in tracked() if not allowed(path)]
    large = [path.name for path in files if path.stat().st_size > MOST_BYTES]
    binary = [path.name for path in files if b"\0" in path.read_bytes()]
    assert not large, f"larger than 1 MiB, outside {' and '.join(LARGE_FOLDERS)}: {large}"
    assert not binary, f"no text, outside {' and '.join(LARGE_FOLDERS)}: {binary}"
