"""Damaged copies of a file: bytes that were lost, flipped or written twice, values that are not what they were, and plans edited by hand."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from neaptide.plans.plan_file import checksum

DEEP = 100_000
STRANGE_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    2**31,
    2**63,
    -(2**63),
    10**25,
    10**400,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\ud800",
    "9" * 5000,
    "(" * 2000,
    "neaptide",
    "\u202e\x00\x1b[2J",
    [],
    {},
    [[]],
    {"": {}},
    [0] * 1000,
)
_NUMBER_OR_WORD = re.compile(r'"[^"\n]*"|-?\d+(?:\.\d+)?(?:e-?\d+)?|[A-Za-z_]+')


def whole_file_damages(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Damages that are the same for every file."""
    text = data.decode("utf-8")
    yield "empty", b""
    yield "noise", random.Random(0).randbytes(4096)
    yield "half", data[: len(data) // 2]
    yield "without its end", data[:-2]
    yield "twice", data + data
    yield "with a byte order mark", b"\xef\xbb\xbf" + data
    yield "UTF-16", text.encode("utf-16")
    yield "Latin-1", text.encode("latin-1", "replace") + "\u00e9".encode("latin-1")
    yield "deep closed lists", b"[" * DEEP + b"]" * DEEP
    yield "deep objects", b'{"a":' * DEEP
    yield "deep inside", data.replace(b"[", b"[" * DEEP, 1)
    yield "not a number", b"NaN"
    yield "a word", b"null"


def seeded_damages(data: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Random damages: of bytes, of words, and of values where the file is JSON."""
    rng = random.Random(seed)
    kinds: list[Callable[[bytes, random.Random], bytes]] = [
        _flipped,
        _cut,
        _doubled,
        _reworded,
    ]
    if _is_json(data):
        kinds += [_revalued] * 6
    for number in range(count):
        kind = kinds[number % len(kinds)]
        yield f"{kind.__name__[1:]} {number}", kind(data, rng)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def _flipped(data: bytes, rng: random.Random) -> bytes:
    body = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 20))):
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    return bytes(body)


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _doubled(data: bytes, rng: random.Random) -> bytes:
    start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:end] + data[start:end] + data[end:]


def _reworded(data: bytes, rng: random.Random) -> bytes:
    """One number, word or quoted text is another one."""
    text = data.decode("utf-8")
    found = list(_NUMBER_OR_WORD.finditer(text))
    if not found:
        return _flipped(data, rng)
    match = rng.choice(found)
    word = rng.choice(
        (
            *(
                "nan",
                "inf",
                "-1",
                "1e400",
                "9" * 5000,
                "0x10",
                "",
                "true",
                '""',
                "[]",
                "{}",
                "\u0663",
                "1" + "0" * 30,
            ),
            rng.choice(found)[0],
        )
    )
    return (text[: match.start()] + word + text[match.end() :]).encode()


def _revalued(data: bytes, rng: random.Random) -> bytes:
    content = json.loads(data)
    revalue(content, rng)
    return json.dumps(content).encode()


def revalue(content: Any, rng: random.Random) -> None:
    """One value of a JSON tree is another one, is missing or stands twice. A long list is as likely as a short one."""
    holders: dict[int, list[tuple[Any, Any]]] = {}
    for place in _places(content):
        holders.setdefault(id(place[0]), []).append(place)
    holder, key = rng.choice(rng.choice(list(holders.values())))
    match rng.randrange(6):
        case 0:
            del holder[key]
        case 1:
            other, other_key = rng.choice(rng.choice(list(holders.values())))
            holder[key] = copy.deepcopy(other[other_key])
        case 2 if isinstance(holder, list):
            holder.insert(key, holder[key])
        case 2:
            holder[rng.choice(("", "x", "format", "id"))] = holder[key]
        case 3 if isinstance(holder[key], int) and not isinstance(holder[key], bool):
            holder[key] += rng.choice((-1, 1, 1000))
        case _:
            holder[key] = rng.choice(STRANGE_VALUES)


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in list(items):
        yield content, key
        if isinstance(value, dict | list):
            yield from _places(value)


GONE = object()


def at(tree, path):
    """What stands at a path such as `captured rewrites 0 nodes`, and its parent with the last key."""
    keys = [int(key) if key.lstrip("-").isdigit() else key for key in path.split()]
    for key in keys[:-1]:
        tree = tree[key]
    return tree, keys[-1]


def change(tree, path, value):
    """Put a value, or what a function makes of the one that is there, at a path; `GONE` takes it away."""
    parent, key = at(tree, path)
    if value is GONE:
        del parent[key]
    elif callable(value):
        parent[key] = value(copy.deepcopy(parent[key]))
    else:
        parent[key] = value


def written(document):
    """The text of a plan file, its checksum made anew."""
    return json.dumps({**document, "checksum": checksum(document["plan"])})


def edited(plan, *edits, place="plan programs 0"):
    """The text of a plan whose first program has other values: (path, value or function) each."""
    document = json.loads(plan.to_json())
    for path, value in edits:
        change(document, f"{place} {path}", value)
    return written(document)
