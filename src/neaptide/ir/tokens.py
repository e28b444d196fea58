"""Tokens of the text form, and errors that name line and column."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from neaptide.errors import VerifyError
from neaptide.ir.nodes import Source


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of text with its 1-based place. `kind` is a group of `_TOKEN`, or `end`."""

    kind: str
    text: str
    line: int
    column: int


_STRING = r'"(?:[^"\\\n]|\\.)*"'
_TOKEN = re.compile(
    rf"""
    (?P<source>\#[^\n]*)
  | (?P<string>{_STRING})
  | (?P<value>%[A-Za-z_][A-Za-z0-9_]*)
  | (?P<storage>@[A-Za-z_][A-Za-z0-9_]*(?:\.\d+)?)
  | (?P<slot>\$\d+)
  | (?P<size>\{{[A-Za-z0-9_+*/(),\ -]+\}})
  | (?P<float>-?\d+(?:\.\d*(?:e[+-]?\d+)?|e[+-]?\d+))
  | (?P<int>-?\d+)
  | (?P<word>[A-Za-z_][A-Za-z0-9_.]*(?::[A-Za-z0-9_.]+)*)
  | (?P<sign>[][(){{}},=:])
  | (?P<space>[ \t\r]+)
  | (?P<newline>\n)
    """,
    re.VERBOSE,
)
_SOURCE_FIELD = re.compile(rf"{_STRING}|\S+")


def tokenize(text: str) -> list[Token]:
    """Tokens without white space, an `end` last.

    Raises:
        VerifyError: a character that begins no token; names line and column.
    """
    tokens: list[Token] = []
    line, line_start, position = 1, 0, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise malformed(
                "unexpected character", Token("", text[position], line, position - line_start + 1)
            )
        kind = match.lastgroup or ""
        if kind == "newline":
            line, line_start = line + 1, match.end()
        elif kind != "space":
            tokens.append(Token(kind, match[0], line, position - line_start + 1))
        position = match.end()
    tokens.append(Token("end", "", line, position - line_start + 1))
    return tokens


def malformed(what: str, token: Token) -> VerifyError:
    """The error for a token that does not fit."""
    return VerifyError(f"malformed graph text: {what}", where=f"line {token.line}, column {token.column}")


def split_source(token: Token) -> Source:
    """Read `# file:line module phase "code"`; `-` stands for an empty field, missing ones are empty."""
    fields = _SOURCE_FIELD.findall(token.text[1:])
    if len(fields) > 4:
        raise malformed("a source comment has at most four fields: place, module, phase, code", token)
    try:
        decoded = [str(json.loads(f)) if f.startswith('"') else "" if f == "-" else f for f in fields]
    except json.JSONDecodeError as error:
        raise malformed("a string with a wrong escape", token) from error
    place, module, phase, code = decoded + [""] * (4 - len(decoded))
    file, _, line = place.rpartition(":")
    if place and not re.fullmatch(r"-?\d+", line):
        raise malformed("a source comment begins with file:line", token)
    return Source(file, int(line or 0), code, module, phase)
