"""Long lists of short cases as one test each."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack, chdir
from pathlib import Path
from typing import Any

import pytest

_HOOK = "cases_together"


def together(
    names: str | Sequence[str],
    values: Iterable[Any],
    ids: Iterable[str] | Callable[[Any], str] | None = None,
    parts: int = 1,
    quick: Collection[str | int] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, but one test that runs all cases and reports each that fails, by its name.

    Two of them give each case of one list with each of the other. A case has `tmp_path`, `monkeypatch` and what it
    writes or logs for itself; it shares what other fixtures give. Where cases take long, `parts` tests share them, and
    those that `quick` does not name (or number, from 0) are a test of its own that is slow.
    """
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = [
        (name, case, quick is None or name in quick or number in quick)
        for number, (name, case) in enumerate(_cases(names, list(values), ids))
    ]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        function, others = getattr(test, _HOOK, (test, [("", {}, True)]))
        product = [
            ("-".join(filter(None, pair)), {**one, **other}, is_quick and are_quick)
            for (one_id, one, is_quick), (other_id, other, are_quick) in itertools.product(cases, others)
            for pair in [(one_id, other_id)]
        ]
        marks = [mark for mark in getattr(test, "pytestmark", []) if mark.args[:1] != ("part",)]
        return _as_one_test(function, product, marks, parts)

    return decorate


def _as_one_test(
    function: Callable[..., None],
    cases: list[tuple[str, dict[str, Any], bool]],
    marks: list[pytest.Mark],
    parts: int,
) -> Callable[..., None]:
    given = set(cases[0][1])
    quick, slow = ([case for case in cases if case[2] == wanted] for wanted in (True, False))
    assert quick, "a test whose cases are all slow is marked"
    shares = {f"{part}": quick[part::parts] for part in range(parts)} | ({"slow": slow} if slow else {})
    fixtures = [p for name, p in inspect.signature(function).parameters.items() if name not in given]

    @functools.wraps(function)  # pytest finds its line
    def test(subtests: pytest.Subtests, part: str = "0", **had: Any) -> None:
        for number, (name, case, _) in enumerate(shares[part]):
            with subtests.test(name), ExitStack() as stack:
                own = dict(had)
                if "monkeypatch" in had:
                    own["monkeypatch"] = stack.enter_context(pytest.MonkeyPatch.context())
                if "tmp_path" in had:
                    own["tmp_path"] = had["tmp_path"] / str(number)
                    own["tmp_path"].mkdir()
                    if Path.cwd() == had["tmp_path"]:
                        stack.enter_context(chdir(own["tmp_path"]))
                if "caplog" in had:
                    had["caplog"].clear()
                for captured in {"capsys", "capfd"} & had.keys():
                    had[captured].readouterr()
                function(**own, **case)

    own_names = ("subtests", "part") if len(shares) > 1 else ("subtests",)
    wanted = (*own_names, *(parameter.name for parameter in fixtures))
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in wanted]
    test.__signature__ = inspect.Signature(parameters)
    if len(shares) > 1:
        rows = [pytest.param(part, marks=pytest.mark.slow if part == "slow" else ()) for part in shares]
        marks.append(pytest.mark.parametrize("part", rows).mark)
    test.pytestmark = marks
    setattr(test, _HOOK, (function, cases))
    return test


def _cases(
    names: list[str], values: list[Any], ids: Iterable[str] | Callable[[Any], str] | None
) -> Iterable[tuple[str, dict[str, Any]]]:
    given = None if ids is None or callable(ids) else list(ids)
    for number, value in enumerate(values):
        row = value if len(names) > 1 else (value,)
        said = given[number] if given else "-".join(ids(v) if callable(ids) else _short(v) for v in row)
        yield said, dict(zip(names, row, strict=True))


def _short(value: Any) -> str:
    return value.__name__ if hasattr(value, "__name__") else " ".join(str(value).split())[:60]
