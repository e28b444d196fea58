"""Targets, and how the mistakes in them are named."""

import sys

import pytest

from neaptide.cli.targets import find_target
from neaptide.errors import CaptureError, TargetError, UsageError
from support.together import together


def write(folder, text, name="mine.py"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def refusal(text):
    with pytest.raises(TargetError) as caught:
        find_target(text).build()
    assert caught.value.next_step
    return caught.value


def test_a_file_finds_its_neighbours_and_itself(tmp_path):
    write(tmp_path / "sub", "value = 5", "neighbour.py")
    write(
        tmp_path / "sub",
        "import dataclasses, pickle\nimport neighbour\n"
        "@dataclasses.dataclass\nclass Batch:\n    x: int\n"
        "def factory():\n    return print, pickle.loads(pickle.dumps(Batch(neighbour.value)))\n",
    )
    assert find_target("sub/mine.py:factory").build()[1].x == 5


@pytest.mark.parametrize("name", ["profile.py", "my-step.py"])
def test_names_that_cannot_be_imported_plainly(tmp_path, name):
    write(tmp_path, "def factory():\n    return print, 1\n", name)
    before = sys.modules.get("profile")
    assert find_target(f"{name}:factory").build() == (print, 1)
    assert sys.modules.get("profile") is before


def test_zoo_targets_are_lazy_and_checked():
    assert find_target("zoo:mlp@tiny").factory.keywords["device"] == "cpu"
    assert find_target("zoo:mlp@tiny", "rtx4090").factory.keywords["device"] == "cuda"
    kept = find_target("zoo:mlp@tiny,device=cpu", "rtx4090")
    assert kept.factory.keywords["device"] == "cpu"
    assert "mlp" in str(refusal("zoo:nothing"))
    with pytest.raises(UsageError, match="no option"):
        find_target("zoo:mlp@tiny,heads=3")


@together("text", ["", "train", "model.onnx", "a:b", "C:\\train.py:f"])
def test_what_is_no_target(text):
    assert "file.py:factory" in refusal(text).render()


def test_a_missing_file_names_the_place_and_a_near_one(tmp_path):
    for text in ("trian_me.py:factory", "trian_me.py"):
        error = refusal(text)
        assert error.where == str(tmp_path / "trian_me.py")
        assert "did you mean train_me.py?" in error.next_step


SEVERAL = """
import os
def factory(size=1, *, seed=0): return print, 1
def step(batch): ...
def keyword(*, needed): ...
def _hidden(): ...
number = 5
"""
CANDIDATES = "functions without arguments there: factory"


@together(
    ("source", "target", "line", "told"),
    [
        (SEVERAL, "mine.py", None, [CANDIDATES]),
        (SEVERAL, "mine.py:factroy", None, [CANDIDATES, "did you mean factory?"]),
        (SEVERAL, "mine.py:step", 4, ["takes arguments: batch"]),
        (SEVERAL, "mine.py:keyword", None, ["needed"]),
        (SEVERAL, "mine.py:number", None, ["is a int, not a function"]),
        ("def f(:", "mine.py", None, ["cannot be parsed"]),
        ("import no_such_module_here", "mine.py:factory", 1, ["ModuleNotFoundError"]),
        ("x = 1\n\nx / 0\n", "mine.py:factory", 3, ["ZeroDivisionError"]),
        ("x = 1\ndef f(:\n", "mine.py:factory", 2, ["SyntaxError"]),
        ("import sys\nsys.exit(3)\n", "mine.py:factory", 2, ["ends the process"]),
        ("def factory():\n    return {}['x']\n", "mine.py:factory", 2, ["KeyError: 'x'"]),
        *(
            (f"def factory():\n    {body}\n", "mine.py:factory", 1, [f"returned {came_back}\n"])
            for body, came_back in (
                ("pass", "None"),
                ("return print", "a builtin_function_or_method"),
                ("return print, 1, 2", "a tuple of 3 (builtin_function_or_method, int, int)"),
                ("return [print, 1]", "a list"),
                ("return 1, print", "a tuple of 2 (int, builtin_function_or_method)"),
            )
        ),
    ],
)
def test_what_is_no_factory_is_told_with_its_line(tmp_path, source, target, line, told):
    sys.modules.pop("mine", None)
    path = write(tmp_path, source)
    error = refusal(target)
    assert line is None or error.where == f"{path}:{line}"
    for part in told:
        assert part in error.render()
    assert "mine" not in sys.modules or "import" not in error.what


def test_errors_of_neaptide_pass_through(tmp_path):
    write(
        tmp_path,
        "from neaptide.errors import CaptureError\ndef factory():\n    raise CaptureError('mine')\n",
    )
    with pytest.raises(CaptureError, match="mine"):
        find_target("mine.py:factory").build()
    write(tmp_path, "from neaptide.errors import CaptureError\nraise CaptureError('early')\n", "early.py")
    with pytest.raises(CaptureError, match="early"):
        find_target("early.py:factory")


@together(
    ("body", "words"),
    [
        ("import sys; sys.exit(7)", "ends the process"),
        ("raise SystemExit", "ends the process"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("raise MemoryError", "MemoryError"),
        ("return factory()", "RecursionError"),
        ("raise type('E', (Exception,), {'__str__': lambda self: 1 / 0})", "its message cannot be made"),
        ("yield 1", "a generator"),
    ],
)
def test_whatever_a_factory_does_is_told_with_its_line(call, fake_api, clean_place, body, words):
    (clean_place / "odd.py").write_text(f"def factory():\n    {body}\n")
    ending = call("profile", "odd.py:factory")
    assert ending.code == 2
    assert words in ending.err
    assert "odd.py:" in ending.err
    assert "Traceback" not in ending.err


def test_what_a_program_does_to_the_process_is_told_or_undone(call, fake_api, clean_place):
    (clean_place / "odd.py").write_text("def __getattr__(name):\n    raise ValueError(name)\n")
    ending = call("profile", "odd.py:factory")
    assert (ending.code, "__getattr__" in ending.err) == (2, True)
    (clean_place / "away.py").write_text(
        "import os\n\ndef factory():\n    os.chdir('/')\n    return (lambda batch: batch), 1\n"
    )
    assert call("profile", "away.py:factory", "-o", "report.json").code == 0
    assert (clean_place / "report.json").is_file()
    for kind in (SystemExit, GeneratorExit):
        fake_api.error = kind(3)
        ending = call("compare", "train_me.py:factory")
        assert ending.code == 2
        assert "the program ends the process" in ending.err
