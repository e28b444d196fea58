"""Whatever stands in a file that a command reads: an answer, or one short error; never a traceback or "unexpected"."""

import dataclasses
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import pytest

from neaptide.cli.process import exit_codes
from neaptide.ir.text.writer import print_graph
from neaptide.schedule.order.neutral import to_json
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.recompute_forms import recompute_form
from support.damaged_files import seeded_damages, whole_file_damages
from support.together import together

WORK = ("--work-limit", "200")
SEEDED = 10  # damages of each file, beside those that are the same for all
LONGEST_ERROR = 1500  # characters

ORDER = OrderProblem(
    tuple(OrderStorage(name, 10 * (i + 1), output=name == "y") for i, name in enumerate("abcdy")),
    (
        OrderOp("f", (0,), (1,)),
        OrderOp("g", (0,), (2,), 7),
        OrderOp("h", (1, 2), (3,)),
        OrderOp("k", (3,), (4,)),
    ),
    "a small one",
)
CSV = "id,lower,upper,size,alignment\na,0,1,3,1\nb,0,2,3,4\nc,0,5,2,1\nd,1,4,1,2\n"
TOML = 'peak = "60%"\ntime-limit = 60\nalso = ["early_updates", "block_dp"]\nseed = 3\nverify = true\n'
PROGRAM = 'SIZE = [1, (2, 3)]\n\ndef factory():\n    """Makes it."""\n    return (lambda batch: batch), {"x": 1.5}\n'


@dataclass(frozen=True)
class Reads:
    """A file that a command reads, its name in the command being FILE."""

    name: str
    text: Callable[..., str]
    command: tuple[str, ...]


def plan_text(samples):
    # Of a program that is not there, so that no command captures one.
    return dataclasses.replace(samples.plan(), name="gone.py:factory").to_json()


READS = {
    "order": Reads("file.json", lambda _: to_json(ORDER), ("order", "FILE", *WORK)),
    "order of a graph": Reads(
        "file.graph", lambda _: print_graph(random_graph(3, 12)), ("order", "FILE", *WORK)
    ),
    "layout of a graph": Reads(
        "file.graph", lambda _: print_graph(random_graph(4, 12)), ("layout", "FILE", *WORK)
    ),
    "layout": Reads("file.csv", lambda _: CSV, ("layout", "FILE", *WORK)),
    "layout of a plan": Reads("file.json", plan_text, ("layout", "FILE", *WORK)),
    "explain": Reads("file.json", plan_text, ("explain", "FILE")),
    "run": Reads("file.json", plan_text, ("run", "train_me.py:factory", "--plan", "FILE")),
    "recompute": Reads(
        "file.json",
        lambda _: json.dumps(recompute_form("transformer", 10)),
        ("recompute", "FILE", "--peak", "80%", *WORK),
    ),
    "sweep": Reads(
        "file.json",
        lambda _: json.dumps(recompute_form("transformer", 8)),
        ("sweep", "FILE", "--points", "2", *WORK),
    ),
    "settings": Reads("neaptide.toml", lambda _: TOML, ("compare", "--print-config")),
    "shared settings": Reads(
        "pyproject.toml",
        lambda _: "[project]\nname = 'x'\n\n[tool.neaptide]\n" + TOML,
        ("plan", "--print-config"),
    ),
    "program": Reads("file.py", lambda _: PROGRAM, ("profile", "FILE:factory")),
    "program without a factory": Reads("file.py", lambda _: PROGRAM, ("profile", "FILE")),
}


def check(ending, what):
    assert ending.code in exit_codes.MEANINGS, what
    assert ending.code != exit_codes.BUG, (what, ending.err[-3000:])
    assert "Traceback" not in ending.err, what
    assert len(ending.err) < LONGEST_ERROR, (what, ending.err)
    if ending.code in {exit_codes.USAGE, exit_codes.NOT_SUPPORTED}:
        assert "rror: " in ending.err, what
        assert ending.out == "", what
        if "error: " in ending.err:
            assert "\n  where: " in ending.err, (what, ending.err)
            assert "\n  next: " in ending.err, (what, ending.err)


@pytest.mark.parametrize("kind", READS)
def test_a_damaged_file_is_answered_or_refused_in_a_sentence(call, fake_api, samples, clean_place, kind):
    reads = READS[kind]
    path = clean_place / reads.name
    whole = reads.text(samples).encode()
    command = [word.replace("FILE", str(path)) for word in reads.command]
    path.write_bytes(whole)
    assert call(*command).code in {
        exit_codes.DONE,
        exit_codes.USAGE if kind.endswith(("plan", "factory")) else 0,
    }
    seed = sorted(READS).index(kind)
    for what, damaged in (*whole_file_damages(whole), *seeded_damages(whole, SEEDED, seed)):
        path.write_bytes(damaged)
        check(call(*command), (kind, what))


def long_name(path):
    return path.with_name("x" * 300 + path.suffix)


# What stands where a file should be.
PLACES = {
    "nothing": lambda path: path,
    "a folder": lambda path: path.mkdir() or path,
    "a pipe that nobody writes to": lambda path: os.mkfifo(path) or path,
    "a device without end": lambda path: path.symlink_to("/dev/zero") or path,
    "a device without anything": lambda path: path.symlink_to("/dev/null") or path,
    "a link to itself": lambda path: path.symlink_to(path) or path,
    "a name that is too long": long_name,
    "a name in another script": lambda path: path.with_name("\u6f6e\u6c50 \u00e9" + path.suffix),
    "half a character": lambda path: path.with_name("a\udcff" + path.suffix),
}


@together("kind", [kind for kind in READS if "settings" not in kind])
@together("place", PLACES)
def test_what_is_no_file_is_refused_in_a_sentence(call, fake_api, clean_place, kind, place):
    path = PLACES[place](Path(mkdtemp(dir=clean_place)) / READS[kind].name)
    ending = call(*[word.replace("FILE", str(path)) for word in READS[kind].command])
    check(ending, (kind, place))
    assert ending.code in {exit_codes.USAGE, exit_codes.NOT_SUPPORTED}
