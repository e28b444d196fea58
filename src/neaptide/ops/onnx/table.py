"""How the tables of ONNX are written: many operators with the same meaning as one block of text.

A token such as `Relu^:6,13,14` names an operator and the versions of its schema for which the row holds; carets count the
first inputs that the result may lie on top of, and `*` stands for all of them. A version that is not listed has no row. The
versions begin with the one of opset 7.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from neaptide.ir.registry import OpSpec, Trait

DOMAIN: Final = "onnx"
"""The standard domain, in the names of operations; other domains are written with underscores."""

_TOKEN = re.compile(r"(\w+)(\^*|\*):(\d+(?:,\d+)*)")
_ALL_INPUTS: Final = tuple(range(64))


def op_name(operator: str, version: int, domain: str = "") -> str:
    """The name of an operation: domain, operator and the version since which its schema holds.

    >>> op_name("Conv", 11), op_name("FusedConv", 1, "com.microsoft")
    ('onnx.Conv.11', 'com_microsoft.FusedConv.1')
    """
    space = DOMAIN if domain in {"", "ai.onnx"} else re.sub(r"\W", "_", domain)
    return f"{space}.{operator}.{version}"


def operator_of(op: str) -> str | None:
    """The operator of the standard domain that an operation is, without its version; None for any other operation.

    >>> operator_of("onnx.Conv.11"), operator_of("aten.add.Tensor")
    ('Conv', None)
    """
    space, _, rest = op.partition(".")
    return rest.partition(".")[0] if space == DOMAIN else None


def meaning(*traits: Trait, domain: str = "", **fields: Any) -> Callable[[str], tuple[OpSpec, ...]]:
    """Makes the rows of a block of operators that mean the same; `fields` are further ones of `OpSpec`."""

    def rows(text: str) -> tuple[OpSpec, ...]:
        found = []
        for token in text.split():
            matched = _TOKEN.fullmatch(token)
            if matched is None:
                raise ValueError(f"{token!r} names no operator with its versions")
            operator, marks, versions = matched.groups()
            on_top = _ALL_INPUTS if marks == "*" else tuple(range(len(marks)))
            found += [
                OpSpec(op_name(operator, int(version), domain), frozenset(traits), in_place=on_top, **fields)
                for version in versions.split(",")
            ]
        return tuple(found)

    return rows
