"""The committed ordering problems are those that the generators make."""

import json
from pathlib import Path

from neaptide_corpus.nas_networks import NAS_NETWORKS, nas_network
from neaptide_corpus.rand_wire import rand_wire

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "instances" / "order"


def read(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def test_files_are_what_the_generators_make():
    made = {name: nas_network(name) for name in NAS_NETWORKS}
    made |= {f"rand_wire_{seed}": rand_wire(seed) for seed in range(3)}
    for name, form in made.items():
        assert read(name) == {**form, "name": name}


def test_the_index_names_every_file():
    index = read("index")
    assert {path.stem for path in FOLDER.glob("*.json")} == {"index", *index}
    for name, how in index.items():
        form = read(name)
        assert (len(form["ops"]), len(form["storages"])) == (how["ops"], how["storages"])
        assert (FOLDER / f"{name}.json").stat().st_size < 300_000
