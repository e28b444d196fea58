"""Parser of size expressions: recursive descent over the grammar that `str(SizeExpr)` prints, and a little more."""

from __future__ import annotations

import re
from operator import mul

from neaptide.errors import SymbolicError
from neaptide.symbolic.size_expr import SizeExpr, floordiv, maximum, modulo

_TOKEN = re.compile(r"\s*(?:(?P<number>\d+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>\*\*|//|[-+*%(),]))")
_FUNCTIONS = {"floordiv": floordiv, "mod": modulo, "max": maximum}
_PRODUCTS = {"*": mul, "//": floordiv, "%": modulo}
_DEEPEST = 100  # nesting, well below Python's recursion limit
_HIGHEST_POWER = 64  # a typing error must not become a huge polynomial


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, int]] = []
        self.at = 0
        self.depth = 0
        position = 0
        while position < len(text.rstrip()):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._error(
                    "unexpected character", position + len(text[position:]) - len(text[position:].lstrip())
                )
            self.tokens.append((match[0].strip(), match.end() - len(match[0].strip())))
            position = match.end()

    def _error(self, what: str, position: int | None = None) -> SymbolicError:
        if position is None:
            position = self.tokens[self.at][1] if self.at < len(self.tokens) else len(self.text)
        return SymbolicError(
            f"malformed size expression: {what} at column {position + 1}", where=repr(self.text)
        )

    def peek(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def expect(self, sign: str) -> None:
        if self.peek() != sign:
            raise self._error(f"expected {sign!r}")
        self.at += 1

    def whole(self) -> SizeExpr:
        result = self.sum()
        if self.at < len(self.tokens):
            raise self._error(f"unexpected {self.peek()!r}")
        return result

    def sum(self) -> SizeExpr:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self._error("nested too deeply")
        result = self.product()
        while self.peek() in {"+", "-"}:
            sign = self.take()
            right = self.product()
            result = result + right if sign == "+" else result - right
        self.depth -= 1
        return result

    def product(self) -> SizeExpr:
        negative = self.peek() == "-"
        if negative:
            self.take()
        result = self.factor()
        if negative:
            result = -result  # as in Python, a leading minus binds tighter than a product: -x//2 is (-x)//2
        while (sign := self.peek()) in _PRODUCTS:
            self.take()
            right = self.factor()
            result = _PRODUCTS[sign](result, right)
        return result

    def factor(self) -> SizeExpr:
        base = self.primary()
        if self.peek() != "**":
            return base
        self.take()
        if not self.peek().isdigit() or int(self.peek()) > _HIGHEST_POWER:
            raise self._error(f"expected a power up to {_HIGHEST_POWER}")
        result = SizeExpr.const(1)
        for _ in range(int(self.take())):
            result = result * base
        return result

    def primary(self) -> SizeExpr:
        word = self.peek()
        if word.isdigit():
            self.take()
            return SizeExpr.const(int(word))
        if word == "(":
            self.take()
            inner = self.sum()
            self.expect(")")
            return inner
        if word in _FUNCTIONS:
            self.take()
            self.expect("(")
            left = self.sum()
            self.expect(",")
            right = self.sum()
            self.expect(")")
            return _FUNCTIONS[word](left, right)
        if word and (word[0].isalpha() or word[0] == "_"):
            self.take()
            return SizeExpr.dim(word)
        raise self._error(f"unexpected {word!r}" if word else "unexpected end")


def parse_size_expr(text: str) -> SizeExpr:
    """The expression that a text spells, so that `parse_size_expr(str(e)) == e`. Nothing is ever evaluated as code.

    Sums, products, powers, `//`, `%`, parentheses, `floordiv`, `mod` and `max` are known.

    Raises:
        SymbolicError: malformed text; names the column.
    """
    return _Parser(text).whole()
