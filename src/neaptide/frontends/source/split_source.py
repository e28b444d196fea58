"""A step function cut in two at one of its statements, as Python source that is compiled anew.

The *head* runs the statements before the cut and returns the local variables that the *tail*, the statements after
it, reads. Both share globals, closure, file and line numbers with the function. Nothing is run here.
"""

from __future__ import annotations
import __future__

import ast
import copy
import functools
import linecache
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from neaptide.frontends import _torch_private as private

# `int(tensor)` and `float(tensor)`: Python wants a plain number of them, which no trace has. So these calls are written
# anew where a step is compiled from its source, and give a symbol in a trace; with real tensors they are what they were.


def _symbolic(kind: type, symbol: type, holds: Callable[[torch.Tensor], bool]) -> Callable[..., Any]:
    """As `int` or `float`; of a traced tensor that holds such numbers the symbol."""

    def convert(*args: Any) -> Any:
        item: Any = args[0] if len(args) == 1 else None
        if isinstance(item, torch.Tensor) and private.is_fake(item) and holds(item):
            return item.item()
        return item if isinstance(item, symbol) else kind(*args)

    return convert


def _is_whole(item: torch.Tensor) -> bool:
    return not (item.is_floating_point() or item.is_complex() or item.dtype == torch.bool)


_CALLS: Final[Mapping[str, Callable[..., Any]]] = {
    "int": _symbolic(int, torch.SymInt, _is_whole),
    "float": _symbolic(float, torch.SymFloat, torch.Tensor.is_floating_point),
}
CELLS: Final = {f"__neaptide_{name}__": types.CellType(function) for name, function in _CALLS.items()}
"""By name in rewritten source, what it means there."""


def with_number_calls(tree: ast.FunctionDef, function: types.FunctionType) -> ast.FunctionDef:
    """The source of a function with `int(x)` and `float(x)` as calls of `CELLS`, where these names are Python's own."""
    code = function.__code__
    own = {*code.co_varnames, *code.co_cellvars, *code.co_freevars, *function.__globals__}
    found: ast.FunctionDef = _Rewriting(_CALLS.keys() - own).visit(tree)
    return found


class _Rewriting(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in self._names and not node.keywords:
            node.func = ast.copy_location(ast.Name(f"__neaptide_{node.func.id}__", ast.Load()), node.func)
        return node


# -- a step in two parts


_FUTURES = functools.reduce(
    int.__or__, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)
_PAUSES = 0x20 | 0x80 | 0x100 | 0x200  # generators and coroutines
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
MARK = "__neaptide_mark__"


@dataclass(frozen=True)
class Cut:
    """A function in two parts.

    Attributes:
        head: takes what the function takes; returns `(True, variables)` at the cut, and `(False, result)` where the
            function returns before it.
        bind: takes the same; returns the function's parameters, one by one.
        tail: takes the parameters and the variables, those that it reads and the head sets; returns what the function returns.
        calls: dotted names that the tail calls, such as `("self", "meter", "update")`.
    """

    head: types.FunctionType
    bind: types.FunctionType
    tail: types.FunctionType
    variables: tuple[str, ...]
    location: str
    calls: tuple[tuple[str, ...], ...]


class StepSource:
    """The source of a plain function or method, when it is the source of what runs; else `LookupError` says why."""

    def __init__(self, function: types.FunctionType) -> None:
        code = function.__code__
        if code.co_flags & _PAUSES:
            raise LookupError("a generator has no end to run it after")
        self._function = function
        self._tree, self._imports = _definition(function)
        if not _is_same_code(self._code(self._tree), code):
            raise LookupError("the source of the step is not the code that runs")
        self._tree = with_number_calls(self._tree, function)
        starred = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
        self._parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + starred]

    @property
    def length(self) -> int:
        """Number of statements in the function's own body."""
        return len(self._tree.body)

    def marked(self, mark: Callable[[int], None]) -> types.FunctionType:
        """The function, calling `mark(i)` before its i-th statement."""
        tree = copy.deepcopy(self._tree)
        body: list[ast.stmt] = []
        for number, statement in enumerate(tree.body):
            call = ast.Call(ast.Name(MARK, ast.Load()), [ast.Constant(number)], [])
            body += [_located(ast.Expr(call), statement), statement]
        tree.body = body
        return self._compiled(tree, {MARK: types.CellType(mark)})

    def is_clearing(self, number: int) -> bool:
        """Whether a statement only calls `zero_grad` of something."""
        return _is_clearing(self._tree.body[number])

    def clears_gradients(self, at: int) -> tuple[int, ...]:
        """Numbers of the statements from `at` on that only call `zero_grad` of something, and are always reached."""
        found = []
        for number in range(at, self.length):
            statement = self._tree.body[number]
            if _is_clearing(statement):
                found.append(number)
            elif _of_this_scope([statement], (ast.Return, ast.Raise)):
                break
        return tuple(found)

    def cut(self, at: int, moved: tuple[int, ...] = ()) -> Cut:
        """The function in two parts, the tail beginning with a statement; some later ones are `moved` to the head's end."""
        body = self._tree.body
        before = [*body[:at], *(body[i] for i in moved)]
        behind = [statement for i, statement in enumerate(body[at:], at) if i not in moved]
        own = set(self._function.__code__.co_varnames + self._function.__code__.co_cellvars)
        shared = self._definitions(before, behind)
        named = _named([*shared, *behind]) - _bound(shared)
        variables = tuple(sorted(_bound(before) & named & own))
        leave = ast.Return(_pair(True, ast.Tuple([ast.Name(v, ast.Load()) for v in variables], ast.Load())))
        # A rebound parameter is among the variables, and comes back under its own name.
        parameters = [p for p in self._parameters if p not in variables]
        give = ast.Return(ast.Tuple([ast.Name(p, ast.Load()) for p in parameters], ast.Load()))
        tail = copy.deepcopy(self._tree)
        tail.args = ast.arguments([], [ast.arg(n) for n in (*parameters, *variables)], None, [], [], None, [])
        tail.body = self._part([*shared, *behind], _Undeclared())
        code = self._function.__code__
        line = behind[0].lineno
        calls = (_dotted(n.func) for s in (*shared, *behind) for n in ast.walk(s) if isinstance(n, ast.Call))
        return Cut(
            self._compiled(
                self._with_body([*self._part(before, _EarlyReturns()), _located(leave, behind[0])])
            ),
            self._compiled(self._with_body([_located(give, behind[0])])),
            self._compiled(tail, defaults=False),
            variables,
            f"{code.co_filename}:{line}: {linecache.getline(code.co_filename, line).strip()}",
            tuple(sorted({call for call in calls if call})),
        )

    def _definitions(self, before: Sequence[ast.stmt], behind: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Functions and generators that the head defines and the tail names, in order: they are made again in the tail."""
        counts = Counter(name for statement in self._tree.body for name in _bound([statement]))
        found = {
            name: statement
            for number, statement in enumerate(before)
            if _is_definition(statement) or _is_unused_generator(statement, before[number + 1 :])
            for name in _bound([statement])
            if counts[name] == 1
        }
        needed: set[str] = set()
        waiting = list(behind)
        while waiting:
            more = (_named([waiting.pop()]) & found.keys()) - needed
            needed |= more
            waiting += [found[name] for name in more]
        return [statement for name, statement in found.items() if name in needed]

    def _part(self, statements: Sequence[ast.stmt], change: ast.NodeTransformer) -> list[ast.stmt]:
        """Changed copies of statements, after the declarations of global and nonlocal names that they mention."""
        named = _named(statements)
        found: list[ast.stmt] = []
        for statement in _of_this_scope(self._tree.body, (ast.Global, ast.Nonlocal)):
            assert isinstance(statement, (ast.Global, ast.Nonlocal))
            statement.names = [name for name in statement.names if name in named]
            found += [statement] if statement.names else []
        return [*found, *(change.visit(copy.deepcopy(statement)) for statement in statements)]

    def _with_body(self, body: Sequence[ast.stmt]) -> ast.FunctionDef:
        tree = copy.deepcopy(self._tree)
        tree.body = list(body)
        return tree

    def _compiled(
        self, tree: ast.FunctionDef, cells: dict[str, types.CellType] | None = None, *, defaults: bool = True
    ) -> types.FunctionType:
        function = self._function
        added = {**CELLS, **(cells or {})}
        known = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)) | added
        code = self._code(tree, tuple(added))
        made = types.FunctionType(
            code,
            function.__globals__,
            function.__name__,
            function.__defaults__ if defaults else None,
            tuple(known[name] for name in code.co_freevars),
        )
        made.__kwdefaults__ = dict(function.__kwdefaults__ or {}) if defaults else None
        made.__qualname__, made.__module__ = function.__qualname__, function.__module__
        return made

    def _code(self, tree: ast.FunctionDef, further: tuple[str, ...] = ()) -> types.CodeType:
        """The code of a definition where the function's closure, and its class for private names, are around it."""
        around = self._function.__qualname__.split(".")[-2:-1]
        free = (*self._function.__code__.co_freevars, *further)
        inner: ast.stmt = tree
        if around and around[0] != "<locals>":
            inner = ast.ClassDef(around[0], [], [], [tree], [])
        arguments = ast.arguments([], [ast.arg(name) for name in free], None, [], [], None, [])
        outer = ast.FunctionDef("outer", arguments, [inner], [])
        if "type_params" in ast.FunctionDef._fields:  # Python 3.12
            outer.type_params = []  # type: ignore[attr-defined]
            if isinstance(inner, ast.ClassDef):
                inner.type_params = []  # type: ignore[attr-defined]
        # Python compiles calls of what a module imports in a way of its own, so its imports belong to the source.
        module = ast.fix_missing_locations(ast.Module([*self._imports, outer], []))
        original = self._function.__code__
        compiled = compile(
            module, original.co_filename, "exec", flags=original.co_flags & _FUTURES, dont_inherit=True
        )
        code = _code_in(compiled, "outer")
        if isinstance(inner, ast.ClassDef):
            code = _code_in(code, inner.name)
        return _code_in(code, tree.name)


def _definition(function: types.FunctionType) -> tuple[ast.FunctionDef, list[ast.stmt]]:
    """A function's definition, and the imports of its module."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        raise LookupError("the source of the step is not there")
    try:
        module = ast.parse("".join(lines))
    except SyntaxError as error:
        raise LookupError("the source of the step cannot be read") from error
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                found = copy.deepcopy(node)
                found.decorator_list = []
                found.returns = None
                return found, _of_this_scope(module.body, (ast.Import, ast.ImportFrom))
    raise LookupError("the source of the step is not there (a lambda has none of its own)")


def _is_same_code(a: types.CodeType, b: types.CodeType) -> bool:
    names = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars")
    if any(getattr(a, name) != getattr(b, name) for name in names) or len(a.co_consts) != len(b.co_consts):
        return False
    return all(
        _is_same_code(x, y)
        if isinstance(x, types.CodeType) and isinstance(y, types.CodeType)
        else type(x) is type(y) and (x == y or x != x)  # noqa: PLR0124 - not a number
        for x, y in zip(a.co_consts, b.co_consts, strict=True)
    )


def _code_in(code: types.CodeType, name: str) -> types.CodeType:
    return next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)


def _located(node: Any, at: ast.stmt) -> Any:
    for part in ast.walk(node):
        ast.copy_location(part, at)
    return node


def _pair(flag: bool, value: ast.expr) -> ast.expr:
    return ast.Tuple([ast.Constant(flag), value], ast.Load())


def _of_this_scope(statements: Sequence[ast.AST], kinds: tuple[type[ast.stmt], ...]) -> list[ast.stmt]:
    """Copies of statements of some kinds, in their order; nested functions and classes are not entered."""
    found: list[ast.stmt] = []
    for node in statements:
        if isinstance(node, kinds):
            found.append(copy.deepcopy(node))
        elif not isinstance(node, _SCOPES):
            found += _of_this_scope(list(ast.iter_child_nodes(node)), kinds)
    return found


class _Undeclared(ast.NodeTransformer):
    """Takes out declarations of global and nonlocal names; each part has its own."""

    def visit_Global(self, node: ast.Global) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        return node if isinstance(node, _SCOPES) else super().generic_visit(node)


class _EarlyReturns(_Undeclared):
    """Says of a return that it is not the cut."""

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        value = node.value or ast.copy_location(ast.Constant(None), node)
        made: ast.Return = ast.copy_location(ast.Return(_pair(False, value)), node)
        return ast.fix_missing_locations(made)


def _dotted(node: ast.expr) -> tuple[str, ...]:
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute) and (inner := _dotted(node.value)):
        return (*inner, node.attr)
    return ()


def _is_definition(statement: ast.stmt) -> bool:
    """Whether a statement defines a function and does nothing else."""
    if isinstance(statement, ast.FunctionDef):
        arguments, decorators = statement.args, statement.decorator_list
    elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Lambda):
        arguments, decorators = statement.value.args, []
    else:
        return False
    defaults = [*arguments.defaults, *filter(None, arguments.kw_defaults)]
    return not decorators and all(isinstance(default, ast.Constant) for default in defaults)


def _is_unused_generator(statement: ast.stmt, later: Sequence[ast.stmt]) -> bool:
    """Whether a statement makes a generator of a variable, and later ones neither draw from it nor set what it is made of."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.GeneratorExp):
        return False
    is_plain = isinstance(statement.value.generators[0].iter, ast.Name)
    made_of = _named([statement])
    return is_plain and not _bound([statement]) & _named(later) and not made_of & _bound(later)


def _is_clearing(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    call = statement.value
    plain = all(isinstance(a, ast.Constant) for a in (*call.args, *(k.value for k in call.keywords)))
    return plain and isinstance(call.func, ast.Attribute) and call.func.attr == "zero_grad"


def _bound(statements: Sequence[ast.AST]) -> set[str]:
    """Local names that statements set or delete; what nested functions set is theirs."""
    found: set[str] = set()
    waiting: list[ast.AST] = list(statements)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
            continue
        elif isinstance(node, ast.Lambda):
            continue
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            found |= {n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr)}
            continue
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
        waiting.extend(ast.iter_child_nodes(node))
    return found


def _named(statements: Sequence[ast.stmt]) -> set[str]:
    """Names that statements mention, nested functions included."""
    return {n.id for statement in statements for n in ast.walk(statement) if isinstance(n, ast.Name)}
