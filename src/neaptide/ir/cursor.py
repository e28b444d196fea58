"""Cursor over the tokens of the text form: expectations, lists, numbers, words and sizes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from neaptide.errors import SymbolicError, VerifyError
from neaptide.ir.tokens import Token, malformed, tokenize
from neaptide.symbolic.parsing import parse_size_expr
from neaptide.symbolic.size_expr import SizeExpr

T = TypeVar("T")


class Cursor:
    """Tokens of a text, read from front to back; what is not as expected raises `VerifyError` with line and column."""

    def __init__(self, text: str) -> None:
        self.tokens = tokenize(text)
        self.at = 0

    def peek(self) -> Token:
        """The next token."""
        return self.tokens[self.at]

    def following(self) -> Token:
        """The token after the next; the end again at the end."""
        return self.tokens[min(self.at + 1, len(self.tokens) - 1)]

    def take(self, kind: str | None = None, text: str | None = None) -> Token:
        """Consume the next token, which must be of that kind and text."""
        token = self.tokens[self.at]
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
        return malformed(what, token or self.peek())

    def listed(self, item: Callable[[], T], close: str = ")") -> list[T]:
        """Items up to `close`, with commas between."""
        items: list[T] = []
        while not self.accept(close):
            if items:
                self.take("sign", ",")
            items.append(item())
        return items

    def parenthesised(self, item: Callable[[], T]) -> list[T]:
        """Items in parentheses."""
        self.take("sign", "(")
        return self.listed(item)

    def one(self, item: Callable[[], T]) -> T:
        """One item in parentheses."""
        self.take("sign", "(")
        result = item()
        self.take("sign", ")")
        return result

    def integer(self) -> int:
        """A whole number."""
        return int(self.take("int").text)

    def string(self) -> str:
        """A quoted string."""
        token = self.take("string")
        try:
            return str(json.loads(token.text))
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
