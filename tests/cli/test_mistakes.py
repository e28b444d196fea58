"""What the commands on files refuse, each in words that say what to do: files, options and methods that cannot be meant."""

import json

import pytest

from neaptide.ir.text.writer import print_graph
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.recompute_forms import recompute_form
from support.together import together

ONE = {"format": "neaptide.memories/1", "spaces": [{"name": "only"}]}
FILES = {
    "two.csv": "id,lower,upper,size\na,0,1,3\nb,0,2,3\n",
    "step.graph": print_graph(random_graph(4, 12)),
    "instance.json": json.dumps(recompute_form("transformer", 8)),
    "memories.json": json.dumps(ONE),
    "plan.json": "{}",
    "latin.csv": b"id,lower,upper,size\n\xe9,0,1,2\n",
    "empty.csv": "",
    "wrong.csv": "id,lower,upper,size\na,0,1,2\nb,3,3,4\n",
    "other.txt": "hello\n",
    "bad.json": "{",
    "nodes.json": "[{}]",
    "form.json": '{"format": "x/1"}',
    "list.json": "[]",
    "order.json": '{"format": "neaptide.order/1", "storages": []}',
}
MEMORIES = ("layout", "two.csv", "--memories", "memories.json")
SWEEP = ("sweep", "instance.json")
FOR_HALF = ("recompute", "instance.json", "--peak", "50%")


@pytest.fixture
def files(clean_place):
    for name, content in FILES.items():
        (clean_place / name).write_bytes(content if isinstance(content, bytes) else content.encode())


@together(
    ("arguments", "words"),
    [
        (("layout", "none.csv"), "cannot be read"),
        (("layout", "none.json"), "no such file"),
        (("layout", "latin.csv"), "cannot be read"),
        (("layout", "empty.csv"), "no buffers"),
        (("layout", "wrong.csv"), "wrong.csv:3, column 'upper'"),
        (("layout", "other.txt"), "no column 'hello'"),
        (("layout", "bad.json"), "is no JSON"),
        (("layout", "two.csv", "--method", "sorcery"), "'sorcery'"),
        (("layout", "two.csv", "--plan", "plan.json"), "takes no plan"),
        *((("layout", "two.csv", f"--alignment={value}"), "--alignment") for value in ("3", "0", "-1", "x")),
        (("layout", "two.csv", "--ladder"), "buffers alone have no ladder"),
        (("layout", "step.graph", "--ladder", "--capacity", "9"), "--capacity has no meaning with --ladder"),
        (("layout", "step.graph", "--ladder", "-o", "o.csv"), "-o has no meaning with --ladder"),
        *(
            ((*MEMORIES, *option), f"{option[0]} has no meaning with --memories")
            for option in (
                *(("--capacity", "9"), ("--method", "all"), ("-o", "o.csv"), ("--ladder",), ("--text",)),
            )
        ),
        (("order", "none.json"), "cannot be read"),
        (("order", "bad.json"), "is no JSON"),
        (("order", "form.json"), "the file holds no ordering problem"),
        (("order", "list.json"), "the file holds no ordering problem"),
        (("order", "order.json"), "missing required field `ops`"),
        (("order", "step.graph", "--method", "best"), "no ordering method 'best'"),
        (("order", "step.graph", "--method", "best"), "serenity_dp"),
        ((*SWEEP, "--strategy", "micro_batch"), "keeps the bits is not drawn by"),
        (
            ("sweep", "zoo:mlp@tiny", "--numerics", "close", "--strategy", "best"),
            "no strategy is called 'best'",
        ),
        ((*SWEEP, "--numerics", "close"), "has no regions that could run in parts"),
        ((*SWEEP, "--points", "1"), "at least 2"),
        ((*SWEEP, "--picture", "curve.gif"), "is no picture"),
        (FOR_HALF[:2], "planned for a budget"),
        (("recompute", "none.json", "--peak", "50%"), "cannot be read"),
        (("recompute", "zoo:mlp@tiny", "--peak", "50%"), "is no recompute instance"),
        (("recompute", "nodes.json", "--peak", "50%"), "cannot be read"),
        ((*FOR_HALF, "--strategy", "best"), "no strategy is called 'best'"),
        ((*FOR_HALF, "--also", "worst"), "no strategy is called 'worst'"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(call, files, arguments, words):
    ending = call(*arguments, "--json")
    assert ending.code == 2
    assert words in ending.err
    assert json.loads(ending.out)["error"]["exit_code"] == 2


def test_a_file_of_another_form_is_not_supported(call, files):
    ending = call("layout", "form.json")
    assert ending.code == 4
    assert "is no plan" in ending.err


@together(
    ("memories", "words"),
    [
        ("{", "is no JSON"),
        ([], "the file of memories is no JSON object"),
        ({"spaces": []}, "has no `format`"),
        ({"format": "x/1", "spaces": []}, "the format 'x/1' is not known"),
        (ONE | {"spaces": {}}, "`spaces` is no list"),
        (ONE | {"spaces": []}, "there is no memory space"),
        (ONE | {"spaces": [{"name": ""}]}, "the name of space 0 is no text"),
        (ONE | {"spaces": [{"name": "x", "size": 3}]}, "space 0 has an unknown key 'size'"),
        (ONE | {"spaces": [{"name": "x", "capacity_bytes": "1KiB"}]}, "'x' has a number that is no integer"),
        (ONE | {"accesses": 3}, "accesses is no JSON object"),
        (ONE | {"accesses": {"a": -1}}, "buffer 'a' is accessed -1 times"),
        (ONE | {"allowed": {"a": "only"}}, "`allowed` of buffer 'a' is no list"),
        (ONE | {"allowed": {"z": ["only"]}}, "there is no buffer 'z'"),
    ],
)
def test_mistakes_in_a_file_of_memories_are_named_with_the_file(call, files, clean_place, memories, words):
    text = memories if isinstance(memories, str) else json.dumps(memories)
    (clean_place / "memories.json").write_text(text)
    ending = call(*MEMORIES)
    assert ending.code == 2
    assert words in ending.err
    assert "memories.json" in ending.err
