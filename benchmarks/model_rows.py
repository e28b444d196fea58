"""Models one after another, each measured in a process of its own and kept as soon as it is there."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench_record import run_part, save, say

Row = dict[str, Any]


def measured_rows(
    script: str,
    models: Sequence[str],
    folder: Path | None = None,
    *,
    size: str,
    options: Sequence[str],
    keep: bool = False,
    timeout_s: float,
    prefix: str = "",
    environment: Mapping[str, str] = MappingProxyType({}),
) -> list[Row]:
    """What `SCRIPT --one MODEL@SIZE OPTIONS` prints for each model; a model that fails is a row with its `failure`.

    Args:
        script: of this folder.
        models: names.
        folder: where each row is kept as soon as it is there, as `PREFIXMODEL-SIZE.json`; None keeps none.
        size: of all models.
        options: of the script.
        keep: take rows that an earlier run has kept.
        timeout_s: for one model.
        prefix: of the names of the files.
        environment: of the processes (`run_part`).
    """
    rows: list[Row] = []
    for model in models:
        kept = None if folder is None else folder / f"{prefix}{model}-{size}.json"
        if kept is not None and keep and kept.exists():
            rows.append(json.loads(kept.read_text(encoding="utf-8")))
            continue
        spec = f"{model}@{size}"
        say(spec)
        before = time.monotonic()
        row = {"spec": spec} | run_part(
            script, "--one", spec, *options, timeout_s=timeout_s, environment=environment
        )
        row["seconds"] = round(time.monotonic() - before, 1)
        row["commit"] = commit()
        say(f"  {row['seconds']:.0f} s" + (f", failed: {row['failure']}" if "failure" in row else ""))
        if kept is not None and "failure" not in row:
            save(kept.stem, row, kept.parent)
        rows.append(row)
    return rows


def commit() -> str | None:
    """Of the source tree; None outside of one."""
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None
