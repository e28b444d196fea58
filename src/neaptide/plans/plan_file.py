"""The outside of a plan file: its format, its checksum, and that nothing stands in it that nobody reads."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from neaptide.errors import PlanError
from neaptide.files.reading import JsonError, decode_json
from neaptide.transform.rewrite import FORMER_NAMES

FORMAT: Final = "neaptide.plan/2"
AGAIN: Final = "make the plan again, or take an unchanged copy of the file"
_OTHER_VERSION: Final = "use the version of neaptide that wrote the plan, or make the plan again"
_FAMILY: Final = "neaptide.plan/"
# Plans of format 1 run the graph that was captured; what they say means the same in format 2.
_READ: Final = ("neaptide.plan/1", FORMAT)
_PARTS: Final = frozenset({"format", "checksum", "plan"})
# Earlier versions wrote them for readers; nothing was decided by them.
_ONLY_TOLD: Final = frozenset({"closer", "most_parts", "most_parts_lower_bound_bytes"})
# Fields by the names that they had before 0.1.0; plan files may use them until 0.2.
_FORMER_FIELDS: Final = {
    "pace": "clock_factor",
    "resident_bytes": "persistent_bytes",
    "stays": "offloads",
    "store_behind": "store_after",
    "gone_behind": "gone_after",
}


def file_text(content: Any) -> str:
    """The text of a plan file; equal contents give equal texts. An error of msgspec, where JSON cannot say something."""
    document = {"format": FORMAT, "checksum": checksum(content), "plan": content}
    text = msgspec.json.format(msgspec.json.encode(document, order="deterministic"), indent=1)
    return text.decode() + "\n"


def file_content(text: str | bytes, where: str | None) -> Any:
    """The plan in the whole text of a plan file, as plain data; `where` it comes from is for messages."""
    try:
        document = decode_json(text)
    except JsonError as error:
        what = "the plan file is truncated or no JSON"
        raise PlanError(what, where=where, why=str(error), next_step=AGAIN) from error
    stated = document.get("format") if isinstance(document, dict) else None
    if not isinstance(stated, str) or not stated.startswith(_FAMILY):
        why = f"its format is {stated!r}, not {FORMAT!r}"
        raise PlanError("the file is no plan", where=where, why=why, next_step=AGAIN)
    if stated not in _READ:
        raise PlanError(
            f"the plan has the unknown format {stated!r}",
            where=where,
            why=f"this version of neaptide reads {' and '.join(map(repr, _READ))}",
            next_step=_OTHER_VERSION,
        )
    if strangers := sorted(document.keys() - _PARTS):
        raise _unknown(strangers[0], where)
    content = document.get("plan")
    if document.get("checksum") != checksum(content):
        raise PlanError(
            "the plan file has been changed since it was written",
            where=where,
            why="its checksum does not fit its content",
            next_step=AGAIN,
        )
    return _current(content)


def check_known(content: Any, known: Any, where: str | None) -> None:
    """Refuse the first field that is gone after reading it into its types: it may change what a plan means. O(size)."""
    stranger = next(_strangers(content, known, ""), None)
    if stranger is not None:
        raise _unknown(stranger, where)


def checksum(content: Any) -> str:
    """SHA-256 of the compact JSON of a plan, with sorted keys."""
    return "sha256:" + hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()


def _unknown(field: str, where: str | None) -> PlanError:
    what = f"the plan file has the field {field!r}, which this version of neaptide does not know"
    return PlanError(what, where=where, next_step=_OTHER_VERSION)


def _strangers(content: object, known: object, path: str) -> Iterator[str]:
    """Paths, such as `programs[0].colour`, of keys that what became of them has not."""
    if isinstance(content, dict) and isinstance(known, dict):
        for key, item in content.items():
            here = f"{path}.{key}" if path else str(key)
            if key in known:
                yield from _strangers(item, known[key], here)
            elif key not in _ONLY_TOLD:
                yield here
    elif isinstance(content, list) and isinstance(known, list | tuple):
        for number, (item, other) in enumerate(zip(content, known, strict=True)):
            yield from _strangers(item, other, f"{path}[{number}]")


def _current(content: Any) -> Any:
    """The content with the names that rules and fields have now."""
    if isinstance(content, list):
        return [_current(part) for part in content]
    if not isinstance(content, dict):
        return content
    rule = content.get("rule")
    renamed = {"rule": FORMER_NAMES[rule]} if isinstance(rule, str) and rule in FORMER_NAMES else {}
    return {_FORMER_FIELDS.get(name, name): _current(part) for name, part in content.items()} | renamed
