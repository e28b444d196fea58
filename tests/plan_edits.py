"""Plan files that somebody has edited: values at paths of a program changed, and the checksum made anew."""

from __future__ import annotations

import copy
import json

from neaptide.plans.plan_file import checksum

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
