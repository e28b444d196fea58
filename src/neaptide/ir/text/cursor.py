"""Tokens of the text form and a cursor over them: expectations, lists, numbers, words, sizes and places."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from neaptide.errors import SymbolicError, VerifyError
from neaptide.ir.nodes import Source
from neaptide.symbolic.parsing import parse_size_expr
from neaptide.symbolic.size_expr import SizeExpr

T = TypeVar("T")
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
_MOST_SOURCE_FIELDS = 4


class Token(NamedTuple):
    """A piece of text with its 1-based place. `kind` is a group of `_TOKEN`, or `end`."""

    kind: str
    text: str
    line: int
    column: int


class Cursor:
    """Tokens of a text, read from front to back; what is not as expected raises `VerifyError` with line and column."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.at = 0

    def peek(self) -> Token:
        return self.tokens[self.at]

    def following(self) -> Token:
        """The token after the next; the end again at the end."""
        return self.tokens[min(self.at + 1, len(self.tokens) - 1)]

    def take(self, kind: str | None = None, text: str | None = None) -> Token:
        """Consume the next token, which must be of that kind and text."""
        token = self.peek()
        if (kind is not None and token.kind != kind) or (text is not None and token.text != text):
            raise self.error(f"expected {text or kind}, found {token.text or 'the end'!r}")
        self.at += 1
        return token

    def accept(self, text: str) -> bool:
        """Consume the next token if it is that sign or word."""
        if self.peek().text == text and self.peek().kind in {"sign", "word"}:
            self.at += 1
            return True
        return False

    def error(self, what: str, token: Token | None = None) -> VerifyError:
        """The error at a token, by default the next one."""
        return _malformed(what, token or self.peek())

    def finish(self, what: str) -> None:
        if self.peek().kind != "end":
            raise self.error(f"unexpected {self.peek().text!r} after the {what}")

    def listed(self, item: Callable[[], T], close: str = ")") -> list[T]:
        """Items up to `close`, with commas between."""
        items: list[T] = []
        while not self.accept(close):
            if items:
                self.take("sign", ",")
            items.append(item())
        return items

    def parenthesised(self, item: Callable[[], T]) -> list[T]:
        self.take("sign", "(")
        return self.listed(item)

    def one(self, item: Callable[[], T]) -> T:
        """One item in parentheses."""
        self.take("sign", "(")
        result = item()
        self.take("sign", ")")
        return result

    def integer(self) -> int:
        return int(self.take("int").text)

    def string(self) -> str:
        token = self.take("string")
        return self.decoded(token.text, token)

    def decoded(self, text: str, token: Token) -> str:
        try:
            return str(json.loads(text))
        except json.JSONDecodeError as error:
            raise self.error("a string with a wrong escape", token) from error

    def word(self) -> str:
        """A bare word (numbers and signs of device and file names included) or a string."""
        return self.string() if self.peek().kind == "string" else self.take("word").text

    def size(self) -> SizeExpr:
        """A whole number, or a size expression in braces."""
        if self.peek().kind == "int":
            return SizeExpr.const(self.integer())
        token = self.take("size")
        try:
            return parse_size_expr(token.text[1:-1])
        except SymbolicError as error:
            raise self.error(error.what, token) from error

    def source(self) -> Source:
        """`# file:line module phase "code"`; `-` stands for an empty field, missing ones are empty."""
        if self.peek().kind != "source":
            return Source()
        token = self.take()
        fields = _SOURCE_FIELD.findall(token.text[1:])
        if len(fields) > _MOST_SOURCE_FIELDS:
            raise self.error("a source comment has at most four fields: place, module, phase, code", token)
        words = [self.decoded(f, token) if f.startswith('"') else "" if f == "-" else f for f in fields]
        place, module, phase, code = words + [""] * (_MOST_SOURCE_FIELDS - len(words))
        file, _, line = place.rpartition(":")
        if place and not re.fullmatch(r"-?\d+", line):
            raise self.error("a source comment begins with file:line", token)
        return Source(file, int(line or 0), code, module, phase)


def _tokens(text: str) -> list[Token]:
    """Tokens without white space, an `end` last."""
    tokens: list[Token] = []
    line, line_start, position = 1, 0, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        column = position - line_start + 1
        if match is None:
            raise _malformed("unexpected character", Token("", text[position], line, column))
        kind = match.lastgroup or ""
        if kind == "newline":
            line, line_start = line + 1, match.end()
        elif kind != "space":
            tokens.append(Token(kind, match[0], line, column))
        position = match.end()
    tokens.append(Token("end", "", line, position - line_start + 1))
    return tokens


def _malformed(what: str, token: Token) -> VerifyError:
    return VerifyError(f"malformed graph text: {what}", where=f"line {token.line}, column {token.column}")
