"""The documentation is run: code blocks of the README, the tutorials and the how-to pages, and the text form's page.

Blocks of one page share a folder, which holds the example scripts, and their Python blocks share a namespace. A block
after `<!-- not run: reason -->` is skipped. `neaptide compare` runs each program in a process of its own: the slow
tests run the pages that show it whole, the others run them without it. Searches end by work, so that their time does
not depend on the machine. Of the output that a page shows, lines outside tables, labels of table rows, and the columns
of eager and the baseline must be in what the command prints; the rest depends on the machine.
"""

import contextlib
import io
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

import neaptide
from support.together import together

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
    ROOT / "docs" / "reference" / "budgets-and-units.md",
    ROOT / "docs" / "reference" / "op-table.md",
    ROOT / "docs" / "reference" / "text-ir.md",
]
LINKED = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
BLOCK = re.compile(r"(<!-- not run: .+? -->\n+)?^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
STABLE_COLUMNS = {"eager", "baseline"}
WORK = 150  # of each search


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int

    @property
    def compares(self) -> bool:
        return "$ neaptide compare " in self.text


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[2], found[3], text.count("\n", 0, found.start(2)) + 1)
        for found in BLOCK.finditer(text)
        if not found[1]
    ]


def runnable(page: Path):
    """A page as a parameter of a test; one with dims that vary needs a torch that can trace them."""
    from support.step_checks import needs_varying_dims

    varies = any("dynamic" in block.text for block in blocks(page))
    return pytest.param(page, marks=needs_varying_dims if varies else ())


COMPARING = {page for page in PAGES if any(block.compares for block in blocks(page))}


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def stable_facts(shown: list[str]) -> list[tuple[str, str]]:
    """What a shown output must have in common with a real one: lines, and (row label, cell) pairs."""
    facts: list[tuple[str, str]] = []
    header: list[str] = []
    for line in shown:
        if not line.startswith("|"):
            facts.append(("", line.strip()))
            header = []
        elif not header:
            header = cells(line)
        elif set(line) - set("|-: "):
            row = cells(line)
            facts.append((row[0], ""))
            facts += [
                (row[0], f"{name}={cell}")
                for name, cell in zip(header[1:], row[1:], strict=True)
                if name in STABLE_COLUMNS
            ]
    return [fact for fact in facts if fact != ("", "")]


def run_command(arguments: list[str], monkeypatch) -> str:
    from neaptide.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "argv", ["neaptide", *arguments])
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main()
        except SystemExit as ending:
            code = ending.code
    assert not code, f"neaptide {shlex.join(arguments)} ended with {code}:\n{err.getvalue()}"
    return out.getvalue()


def run_console(block: Block, monkeypatch, printed_before: dict[tuple[str, ...], str]) -> None:
    """Run the commands of a block; `compare`, which writes no file, once for all pages."""
    printed, shown = "", []
    commands = 0
    for line in block.text.splitlines():
        if line.startswith("$ "):
            words = shlex.split(line.removeprefix("$ "))
            assert words[0] == "neaptide", line
            known = printed_before if words[1] == "compare" else {}
            if tuple(words) not in known:
                known[tuple(words)] = run_command(words[1:], monkeypatch)
            printed = known[tuple(words)]
            commands += 1
        else:
            shown.append(line)
    assert commands
    assert commands == 1 or not shown, "show the output of one command at a time"
    missing = [fact for fact in stable_facts(shown) if fact not in stable_facts(printed.splitlines())]
    assert not missing, f"shown but not printed: {missing}\n{printed}"


@pytest.fixture(scope="session")
def printed_before():
    """What commands have printed, by their words."""
    return {}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the examples, in which everything is forgotten afterwards."""
    for script in (ROOT / "examples").glob("*.py"):
        shutil.copy(script, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("NEAPTIDE_WORK_LIMIT", str(WORK))
    for name in ("plan", "compile_step"):
        monkeypatch.setattr(neaptide, name, partial(getattr(neaptide, name), work_limit=WORK))
    before = set(sys.modules)
    path = list(sys.path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(threads)
    sys.path[:] = path
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith(str(tmp_path)):
            del sys.modules[name]


def run_blocks(found: list[Block], page: Path, monkeypatch, printed_before) -> None:
    namespace = {"__name__": "page"}
    for block in found:
        if block.language == "python":
            # Line numbers and source text as on the page, so that a failure points there.
            code = compile("\n" * block.line + block.text, str(page), "exec")
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, namespace)
        else:
            run_console(block, monkeypatch, printed_before)


@pytest.mark.parametrize(
    "page", [runnable(page) for page in PAGES if blocks(page)], ids=lambda page: page.stem
)
def test_every_block_of_a_page_runs(page, folder, monkeypatch, printed_before):
    found = blocks(page)
    run_blocks(
        [block for block in found if page not in COMPARING or not block.compares],
        page,
        monkeypatch,
        printed_before,
    )


@pytest.mark.slow
@pytest.mark.parametrize("page", [runnable(page) for page in sorted(COMPARING)], ids=lambda page: page.stem)
def test_a_page_with_comparisons_runs_whole(page, folder, monkeypatch, printed_before):
    run_blocks(blocks(page), page, monkeypatch, printed_before)


@together("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        aim = (page.parent / path).resolve() if path else page
        assert aim.exists(), f"{page.name} links to {target}"
        if anchor:
            text = aim.read_text(encoding="utf-8")
            headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{page.name} links to {target}"


def test_the_glossary_has_one_meaning_for_each_word():
    page = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    words = [
        word
        for line in page.splitlines()
        if line.startswith("* ")
        for word in re.findall(r"\*\*(.+?)\*\*", line)
    ]
    assert len(words) == len(set(words)) > 40
    assert {"place", "block", "move", "program", "pool", "phase", "moment", "stage"} <= set(words)
