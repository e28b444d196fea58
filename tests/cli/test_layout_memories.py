"""`neaptide layout --memories`: on a CSV, on a graph, and mistakes in the file of memories."""

import json
import re
from pathlib import Path

import pytest

from neaptide.layout.minimalloc_csv import read_csv
from neaptide.layout.pools.memories_form import pooled_problem
from neaptide.layout.pools.spaces import Place, PooledLayout, check_pooled_layout

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "place-buffers-in-several-memories.md").read_text(
    "utf-8"
)
BUFFERS = "id,lower,upper,size\na,0,2,64\nb,1,3,48\nc,2,4,96\n"
MEMORIES = {
    "format": "neaptide.memories/1",
    "spaces": [
        {"name": "fast", "capacity_bytes": 112, "cost_per_byte": 1, "alignment": 16},
        {"name": "slow", "cost_per_byte": 9},
    ],
    "accesses": {"a": 10, "c": 2},
    "allowed": {"b": ["slow", "fast"]},
}


@pytest.fixture
def written(tmp_path):
    def write(memories=MEMORIES):
        (tmp_path / "buffers.csv").write_text(BUFFERS)
        (tmp_path / "memories.json").write_text(
            memories if isinstance(memories, str) else json.dumps(memories)
        )
        return "buffers.csv", "--memories", "memories.json"

    return write


def test_places_are_a_layout_of_the_problem(call, written):
    ending = call("layout", *written(), "--json")
    assert ending.code == 0
    content = json.loads(ending.out)
    problem = read_csv(BUFFERS)
    pooled = pooled_problem(problem, MEMORIES)
    index = {space.name: i for i, space in enumerate(pooled.spaces)}
    places = [content["places"][buffer.name] for buffer in problem.buffers]
    layout = PooledLayout(
        tuple(Place(index[p["space"]], p["arena"], p["offset"]) for p in places),
        tuple(tuple(space["arena_bytes"]) for space in content["spaces"]),
        content["cost"],
    )
    check_pooled_layout(pooled, layout)
    # 64 and 48 bytes fit the fast one together, 48 and 96 do not: b goes, since c saves more.
    assert [p["space"] for p in places] == ["fast", "slow", "fast"]
    assert (
        content["cost"] == content["lower_bound_cost"] + content["gap"] * content["cost"] == 640 + 432 + 192
    )
    assert sum(space["buffers"] for space in content["spaces"]) == 3


def test_the_table_has_every_memory_and_what_is_proved(call, written):
    shown = call("layout", *written()).out
    assert re.search(r"\| fast +\| +2 \| +1 \| +96 B \| +112 B \| +832 \|", shown)
    assert re.search(r"\| slow +\| +1 \| +1 \| +48 B \| +no end \| +432 \|", shown)
    assert "cost: 1264. No choice costs less" in shown


def test_what_does_not_fit_is_said_with_its_proof(call, written):
    narrow = {"format": "neaptide.memories/1", "spaces": [{"name": "only", "capacity_bytes": 100}]}
    ending = call("layout", *written(narrow))
    assert ending.code == 3
    assert "no layout fits: " in ending.out
    assert "44 B are missing in the memory that costs most." in ending.out
    found = json.loads(call("layout", *written(narrow), "--json").out)
    assert (found["status"], found["missing_bytes"]) == ("infeasible", 144 - 100)


def test_the_example_of_the_page_is_a_problem():
    example = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL).group(1))
    names = ["conv1", "conv2", "image"]
    problem = read_csv("id,lower,upper,size\n" + "".join(f"{name},0,1,16\n" for name in names))
    assert [space.name for space in pooled_problem(problem, example).spaces] == ["SRAM", "PSRAM"]
